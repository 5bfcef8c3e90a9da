// The arguments of the operations on embedding caches; args.h says how operations are called.
#pragma once

#include "args.h"

#ifdef __cplusplus
extern "C" {
#endif

// The part of a cache that a rank owns: lines for the rows [first_row, first_row + rows) of a table. A row is meant by
// its distance from first_row; line l of set s is line 32 * s + l. Addresses of rows and strides are multiples of 16.
// common/cache.h has what lies in the control memory.
typedef struct wmk_cache {
  uint64_t tags;    // uint32_t, of every line the row in it + 1, 0 for none
  uint64_t lines;   // of stride_bytes each
  uint64_t head;    // cache_head
  uint64_t sets;    // cache_set
  uint64_t sketch;  // uint64_t
  uint64_t home;    // the rows of the table, of stride_bytes each; 0 where they are elsewhere
  uint64_t stride_bytes;
  uint64_t state_lines;  // the optimizer states of the lines; 0 for none
  uint64_t state_home;   // the table of states
  uint64_t state_stride_bytes;
  uint64_t first_row;
  uint64_t rows;  // below 2^32 - 1
  uint64_t set_count;
  uint64_t sketch_words;
  uint32_t whole;  // there is a line for every row
  uint32_t reserved;
} wmk_cache;

// The most bits of rows that order what is read from the table.
#define WMK_MOST_CACHE_ORDER_BITS 13

// Counts the ids, and lets rows into the cache that are asked for more often than the ones they replace. Ids of other
// ranks' rows are left out. What is replaced and dirty is written back first.
typedef struct wmk_cache_adjust_args {
  wmk_cache cache;
  const void *ids;
  uint64_t count;            // below 2^31
  const uint64_t *count_at;  // NULL, or on the device: how many of them there are
  // NULL, or room for `count` values: the rows to load are not loaded but told, as ids of the table (-1: none), and
  // with them the lines that they go to.
  int64_t *load_ids;
  int64_t *load_lines;
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  uint32_t id_bytes;       // 4 or 8, signed
  uint32_t order_bits;     // 0 to WMK_MOST_CACHE_ORDER_BITS; rows are loaded in the order of so many bits of theirs
  uint32_t load_blocks;    // most blocks that load rows
  uint32_t ages;           // halves all counts in the end
  uint32_t reserved[2];
} wmk_cache_adjust_args;

int wmk_cache_adjust(const wmk_cache_adjust_args *args, wmk_stream stream);

// Finds ids in the caches of all ranks. Rank k has the rows [start_rows[k], start_rows[k + 1]), its tags are at
// tags[k].
typedef struct wmk_cache_lookup_args {
  const uint64_t *tags;        // host, `ranks` addresses
  const uint64_t *start_rows;  // host, ranks + 1 values
  uint64_t ranks;
  uint64_t rows;       // ids outside [0, rows) are no lookups
  uint64_t set_count;  // of a rank
  const void *ids;
  uint64_t count;  // below 2^31
  int64_t *lines;  // room for `count`: the line, the ranks' lines numbered through; -1 for none
  void *missed;    // NULL, or room for `count` ids of id_bytes: the id where it has no line, else -1
  // NULL, or room for `count` positions: those of the ids without a line, in the order of the upper order_bits of the
  // ids.
  uint32_t *order;
  uint32_t *misses;  // with `order`: how many there are
  uint64_t head;     // a cache_head that counts lookups and hits, or 0
  uint64_t scratch;  // needed with `order` only
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0 and order is not NULL
  uint32_t id_bytes;
  uint32_t order_bits;
  uint32_t whole;
  uint32_t reserved;
} wmk_cache_lookup_args;

int wmk_cache_lookup(const wmk_cache_lookup_args *args, wmk_stream stream);

// Two gathers into the same rows: `misses`, in an order and with a count_at as a lookup gives them, and `hits`, the
// lookup's lines in the ranks' lines. They run side by side where one kernel serves both.
typedef struct wmk_cache_gather_args {
  wmk_rows_args hits;
  wmk_rows_args misses;
} wmk_cache_gather_args;

int wmk_cache_gather(const wmk_cache_gather_args *args, wmk_stream stream);

// An adjustment and a gather in one, for the cache of one rank: what was missed is read from the table once, and what
// enters the cache is copied to its line from the output.
typedef struct wmk_cache_read_args {
  wmk_cache cache;  // first_row is 0
  wmk_rows_args
      rows;  // the gather from the table, of the same types, whole rows but for padding; without order and count_at
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  uint32_t order_bits;
  uint32_t hit_blocks;  // most blocks for what is in the cache
  uint32_t ages;
  uint32_t reserved;
} wmk_cache_read_args;

int wmk_cache_read(const wmk_cache_read_args *args, wmk_stream stream);

// Where rows are to be changed, for wmk_step (which has what the arrays mean): in their lines, which are dirty from now
// on, else in the table. Their states are read from state_sources and must all be written to state_targets; the two
// differ where the states of a line are not in the cache yet.
typedef struct wmk_cache_locate_args {
  wmk_cache cache;
  const void *sorted_rows;
  uint64_t count;  // below 2^31
  uint64_t *row_places;
  uint64_t *state_sources;  // NULL without states, like the next
  uint64_t *state_targets;
  // NULL, or room for `count` values: the places in sorted_rows where rows begin that have no line, in the order of so many
  // upper bits of their rows as order_bits says (0 to WMK_MOST_CACHE_ORDER_BITS), and how many they are. To work in: room for
  // `count` values, and 2 ^ order_bits zeros.
  uint32_t *home_heads;
  uint32_t *home_count;
  uint64_t *home_turns;
  uint32_t *home_buckets;
  uint32_t row_bytes;  // of a sorted row's number: 4 or 8
  uint32_t order_bits;
} wmk_cache_locate_args;

int wmk_cache_locate(const wmk_cache_locate_args *args, wmk_stream stream);

enum wmk_cache_flush_part {
  WMK_CACHE_WRITE_BACK = 1,  // the table and the states' table get what is dirty
  WMK_CACHE_DROP = 2,        // no line has a row any more
  WMK_CACHE_RESET = 4,       // and nothing was ever counted: all control memory is zero
};

typedef struct wmk_cache_flush_args {
  wmk_cache cache;
  uint32_t parts;  // wmk_cache_flush_part
  uint32_t reserved;
} wmk_cache_flush_args;

int wmk_cache_flush(const wmk_cache_flush_args *args, wmk_stream stream);

#ifdef __cplusplus
}
#endif
