// The arguments of the operations on tables that learn; args.h says how operations are called.
#pragma once

#include "args.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of how many sorted rows wmk_group leaves one word that is zero, for an operation on them to count in.
#define WMK_GROUP_WINDOW 64

// Lots that positions may be numbered in.
#define WMK_GROUP_LOTS 16

// Brings ids of the same row together, for an operation on each of the rows they name. The rows [first_row, first_row +
// rows) are numbered from 0; ids of others become `rows` and come last. Ids of one row stay in the order of their positions.
// A row's number has 4 bytes where `rows` fits, else 8.
typedef struct wmk_group_args {
  const void *ids;
  uint64_t count;  // below 2^31
  uint64_t first_row;
  uint64_t rows;  // below 2^63
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  // Host; set to addresses inside the scratch: `count` sorted rows, the positions that their ids had (uint32_t), and
  // count / WMK_GROUP_WINDOW + 1 + spare zeros (uint32_t): those of the windows, and others behind them for counts of anything.
  uint64_t *rows_at;
  uint64_t *positions_at;
  uint64_t *zeros_at;
  uint32_t id_bytes;  // 4 or 8, signed
  uint32_t ascends;   // 1: rows ascend, for memory that likes neighbours; 0: they come in any order
  // 0: the position of id i is i. Else lots of ids, the first of which begins with id 0: the position of id i is
  // lot_positions[k] + i - lot_firsts[k] for the last k with lot_firsts[k] <= i. Both ascend.
  uint32_t lots;
  uint32_t spare;
  uint32_t lot_firsts[WMK_GROUP_LOTS];
  uint32_t lot_positions[WMK_GROUP_LOTS];
} wmk_group_args;

int wmk_group(const wmk_group_args *args, wmk_stream stream);

// An optimizer and its parameters; `rule` of common/optimizer.h.
typedef struct wmk_rule {
  uint32_t optimizer;
  uint32_t adam_w;
  float learning_rate;
  float weight_decay;
  float epsilon;
  float beta1;
  float beta2;
  float alpha;
} wmk_rule;

// Sums the gradients of every row among sorted ones and lets the optimizer change the row. Gradients of a row are cut into
// runs of 512, each summed left to right in float (first assigned, others added), then the run sums left to right.
typedef struct wmk_step_args {
  uint64_t sorted_rows;  // as wmk_group leaves them, like the next two
  uint64_t positions;
  uint64_t zeros;  // one a window is used
  uint64_t count;  // below 2^31
  uint64_t rows;   // sorted rows from `rows` on are no rows
  // The gradient at position p begins at gradients + p * gradient_stride_bytes; at any multiple of its elements' size.
  uint64_t gradients;
  uint64_t gradient_stride_bytes;
  uint64_t cols;  // below 2^28; so many elements of a row are changed
  // Row r begins at table + r * table_stride_bytes, its state k (floats) at states[k] + r * state_stride_bytes, all multiples
  // of 16. Behind its last element a row has as much memory as makes up whole 16 bytes, and a state has as many elements.
  // Unused states are 0.
  uint64_t table;
  uint64_t table_stride_bytes;
  uint64_t states[2];
  uint64_t state_stride_bytes;
  // Two floats a row, for the optimizer that has them.
  uint64_t beta_powers;
  // NULL, or for every sorted row that differs from the one before it (others are not looked at): where the row is, and
  // where its first state is read and written, a second state states[1] - states[0] behind it. Instead of table and states.
  const uint64_t *row_places;
  const uint64_t *state_sources;
  const uint64_t *state_targets;
  // NULL, or with row_places: where rows begin that are in the table, which lies in the host's memory, and how many they
  // are. home_blocks blocks change these, the others all other rows.
  const uint32_t *home_heads;
  const uint32_t *home_count;
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  wmk_rule rule;
  uint32_t gradient_dtype;  // FLOAT, HALF or BF16, like the table's
  uint32_t table_dtype;
  uint32_t blocks;  // most blocks of 256 threads that change rows
  uint32_t home_blocks;
} wmk_step_args;

int wmk_step(const wmk_step_args *args, wmk_stream stream);

// mapped[i] = where round robin puts logical row ids[i], -1 for ids outside [0, rows): row g belongs to rank
// (g / block_rows) % ranks, there to local row block_rows * (g / block_rows / ranks) + g % block_rows; the rows of rank k
// are numbered from k * rank_rows.
typedef struct wmk_map_rows_args {
  const void *ids;
  int64_t *mapped;
  uint64_t count;
  uint64_t block_rows;
  uint64_t ranks;
  uint64_t rank_rows;
  uint64_t rows;
  uint32_t id_bytes;
  uint32_t reserved;
} wmk_map_rows_args;

int wmk_map_rows(const wmk_map_rows_args *args, wmk_stream stream);

// values[i] = value for i in [0, count).
typedef struct wmk_set_args {
  uint64_t values;  // floats
  uint64_t count;
  float value;
  uint32_t reserved;
} wmk_set_args;

int wmk_set(const wmk_set_args *args, wmk_stream stream);

#ifdef __cplusplus
}
#endif
