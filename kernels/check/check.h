// What the checks share.
#pragma once

#include "../args_cache.h"
#include "device.h"

struct Tally {
  int passed = 0, failed = 0;
  void count(bool right) { right ? passed++ : failed++; }
};

// How much is checked. few: every kernel and every kind of branch, seldom more than once, for checkers that slow kernels
// down a hundred times; quick: all but what is large.
enum class Size { few, quick, all };

// Gather and scatter; `rounds` times all types and partitions.
void check_rows(Tally &tally, int rounds, Size size);
// Rows that end with their memory; for a memory checker.
void check_rows_in_tight_memory(Tally &tally, Size size);
void check_large(Tally &tally);
// The split by owner, distinct ids, reading orders, filling.
void check_ids(Tally &tally, Size size);
// Embedding caches; `rounds` times a dozen of them.
void check_caches(Tally &tally, int rounds, Size size);
void check_counts(Tally &tally, Size size);
// Meetings of ranks on streams of one device.
void check_meetings(Tally &tally, Size size);
// Samplers and what they need; lists without doubles and self loops.
void check_graph(Tally &tally, Size size);
void check_lists(Tally &tally, Size size);
// The gradient step; `rounds` times all widths.
void check_learning(Tally &tally, int rounds, Size size);
// Rows dealt to ranks, and values that are set.
void check_dealt(Tally &tally, Size size);
