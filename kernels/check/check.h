// What the checks share.
#pragma once

#include "../args_cache.h"
#include "device.h"

struct Tally {
  int passed = 0, failed = 0;
  void count(bool right) { right ? passed++ : failed++; }
};

// Gather and scatter; `rounds` times all types and partitions.
void check_rows(Tally &tally, int rounds);
// Rows that end with their memory; for a memory checker.
void check_rows_in_tight_memory(Tally &tally);
void check_large(Tally &tally);
// The split by owner, distinct ids, reading orders, filling.
void check_ids(Tally &tally);
// Embedding caches; `rounds` times a dozen of them.
void check_caches(Tally &tally, int rounds);
void check_counts(Tally &tally);
// Meetings of ranks on streams of one device.
void check_meetings(Tally &tally);
// Samplers and what they need; lists without doubles and self loops. Quick: few and small ones.
void check_graph(Tally &tally, bool quick);
void check_lists(Tally &tally, bool quick);
// The gradient step; `rounds` times all widths.
void check_learning(Tally &tally, int rounds);
// Rows dealt to ranks, and values that are set.
void check_dealt(Tally &tally);
