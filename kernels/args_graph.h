// The arguments of the operations on graphs. Included by args.h, which has their rules.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Where the neighbours of the centers are: the edges [start, end) of a center, edge e leading to row e of the columns.
typedef struct wmk_neighbours {
  // INT64: node v has the edges from row v to row v + 1; one row more than nodes. Not looked at where there are spans.
  wmk_table row_pointers;
  const void *centers;    // ids of nodes
  const int64_t *spans;   // NULL, or of every center its start and end
  uint64_t count;         // of centers, 1 to 2^31 - 2
  uint32_t center_bytes;  // 4 or 8, signed
  uint32_t reserved;
} wmk_neighbours;

// How many of a center's neighbours are taken.
enum wmk_take_kind {
  WMK_TAKE_ALL = 0,
  // All if the degree is at most `most`, else `most` of them.
  WMK_TAKE_AT_MOST = 1,
  // All if the degree is above `most`, else none.
  WMK_TAKE_ALL_ABOVE = 2,
};

typedef struct wmk_take {
  uint32_t kind;  // wmk_take_kind
  uint32_t most;  // at least 1 for WMK_TAKE_AT_MOST; below 2^31
} wmk_take;

// ids[2 i] = first + center i, ids[2 i + 1] one more; both -1 for centers outside [0, nodes). spans[2 i] = spans[2 i +
// 1] = -1.
typedef struct wmk_span_ids_args {
  const void *centers;
  uint64_t count;
  uint64_t nodes;
  uint64_t first;
  int64_t *ids;
  int64_t *spans;
  uint32_t center_bytes;
  uint32_t reserved;
} wmk_span_ids_args;

int wmk_span_ids(const wmk_span_ids_args *args, wmk_stream stream);

// shifted[i] = edges[i] + by.
typedef struct wmk_shift_args {
  const int64_t *edges;
  uint64_t count;
  int64_t by;
  int64_t *shifted;
} wmk_shift_args;

int wmk_shift(const wmk_shift_args *args, wmk_stream stream);

// What a count of neighbours found.
typedef struct wmk_counted {
  uint64_t total;  // taken over all centers
  uint64_t
      bad_position;   // of the first center that is no node or whose span is not 0 <= start <= end <= edges; else ~0
  int64_t bad_start;  // -1 for a center that is no node
  int64_t bad_end;
} wmk_counted;

// Exclusive prefix sums of how many neighbours are taken of each center. Bad centers count for none.
typedef struct wmk_sample_offsets_args {
  wmk_neighbours neighbours;
  uint64_t edges;
  wmk_take take;
  int32_t *offsets;      // one more than centers; without meaning where the total is beyond INT
  wmk_counted *counted;  // memory that both host and device can write; there when the stream has passed
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
} wmk_sample_offsets_args;

int wmk_sample_offsets(const wmk_sample_offsets_args *args, wmk_stream stream);

// Writes the neighbours taken of each center, in the order of common/sample.h. No center is bad.
typedef struct wmk_sample_args {
  wmk_neighbours neighbours;
  wmk_table columns;  // of column_bytes; not looked at without `dest`
  // One weight an edge, or no places: weights are fetched, or all are alike.
  wmk_table weights;
  // NULL, or neighbour y of center i weighs fetched_weights[fetched_offsets[i] + y] where not all are taken.
  const void *fetched_weights;
  const int32_t *fetched_offsets;
  uint64_t seed;
  wmk_take take;
  const int32_t *offsets;  // as wmk_sample_offsets wrote them
  uint64_t total;          // the last of them, below 2^31
  int32_t *offsets_out;    // NULL, or where they are copied to
  void *dest;              // NULL, or `total` of column_bytes: the columns of the edges taken
  int32_t *positions;      // NULL, or the place of the center among the centers
  int64_t *edges;          // NULL, or the numbers of the edges
  uint64_t scratch;
  uint64_t scratch_bytes;  // may be 0 where none is needed
  uint64_t *needed_bytes;  // host; not NULL: set and nothing else done
  uint32_t column_bytes;   // 4 or 8
  uint32_t weight_dtype;   // FLOAT or DOUBLE of wholememory_dtype_t, 0: all weights are alike
} wmk_sample_args;

int wmk_sample(const wmk_sample_args *args, wmk_stream stream);

// Distinct ids: the targets as they are, then the neighbours that are not among them, by first occurrence.
// wmk_append_count finds how many these are; wmk_append_write, given the same lists and the scratch as the count left
// it, writes them and where each neighbour is.
typedef struct wmk_append_args {
  const void *targets;
  uint64_t target_count;
  const void *neighbours;
  uint64_t neighbour_count;  // both together 1 to 2^31 - 2
  uint64_t *new_ids;         // memory that both host and device can write; there when the stream has passed the count
  void *unique;              // room for the targets and the new ids
  int32_t *map;              // NULL, or of every neighbour the first place in `unique`
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0 (by the count)
  uint32_t id_bytes;       // 4 or 8
  uint32_t reserved;
} wmk_append_args;

int wmk_append_count(const wmk_append_args *args, wmk_stream stream);
int wmk_append_write(const wmk_append_args *args, wmk_stream stream);

// Row r of a graph with r itself before its columns. A row whose pointers are not 0 <= start <= end <= edges gets no
// columns.
typedef struct wmk_self_loops_args {
  const int32_t *row_pointers;  // rows + 1
  uint64_t rows;                // below 2^31
  const int32_t *columns;
  uint64_t edges;             // below 2^31
  int32_t *row_pointers_out;  // rows + 1
  int32_t *columns_out;       // edges + rows
} wmk_self_loops_args;

int wmk_self_loops(const wmk_self_loops_args *args, wmk_stream stream);

#ifdef __cplusplus
}
#endif
