// The arguments of every kernel operation, as the library's Rust side fills them (src/platform/cuda/launch.rs mirrors
// these structs; a test compares the layouts). Addresses are device addresses unless a comment says "host". Plain C
// types only.
//
// Every operation is `extern "C" int wmk_<op>(const wmk_<op>_args*, cudaStream_t)`: it enqueues on the stream of the
// current context and returns a CUDA runtime error code, 0 for success. NULL arguments load the operation's kernels for
// the current device and launch nothing. Nothing is allocated; operations with a `scratch` say how much they need.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// cudaStream_t and CUstream.
typedef struct CUstream_st *wmk_stream;

// Where the rows of a table are: row r of rank k, start_rows[k] <= r < start_rows[k + 1], begins at
// bases[k] + offset_bytes + (r - start_rows[k]) * stride_bytes.
typedef struct wmk_table {
  const uint64_t *bases;       // host, `places` addresses
  const uint64_t *start_rows;  // host, `places` + 1 values ascending from 0; may be NULL for one place
  uint64_t places;             // 1 to many_places of common/place.h
  uint64_t offset_bytes;
  uint64_t stride_bytes;
  uint64_t rows;  // ids outside [0, rows) are skipped
} wmk_table;

// Rows between a table and plain memory: of a gather plain[i] = table[ids[i]], of a scatter table[ids[i]] = plain[i],
// for ids in [0, rows). Rows may have any alignment that is a multiple of their elements' size.
typedef struct wmk_rows_args {
  wmk_table table;
  const void *ids;
  uint64_t count;
  // NULL, or `count` positions: the ids there are taken, and the plain rows there moved, in this order.
  const uint32_t *order;
  // NULL, or the same in wide numbers where there is no order.
  const int64_t *positions;
  // NULL, or on the device: how many of the `count` (in their order) there are.
  const uint32_t *count_at;
  uint64_t plain;
  uint64_t plain_stride_bytes;
  // Plain rows that there are, for reading past the end of one; 0: `count`.
  uint64_t plain_rows;
  // Elements of a row; its bytes on either side are below 2^31 - 64.
  uint64_t cols;
  // NULL, or the board of a meeting (wmk_board): the last block arrives there for this rank.
  void *board;
  uint32_t id_bytes;     // 4 or 8, signed
  uint32_t table_dtype;  // the enumerators of wholememory_dtype_t
  uint32_t plain_dtype;
  // The most blocks of 256 threads. Fewer than there are pieces for share them out.
  uint32_t blocks;
  // 0: chosen by common/launch.h. Else one of its row_path that the alignments allow, for checks and measurements, and
  // for path_move the bytes of an access.
  uint32_t path;
  uint32_t access_bytes;
  // Where what is before it in the stream is a meeting with WMK_MEET_LETS_NEXT: a call of so many blocks at most begins while
  // that waits. They must leave the GPU to the work that the meeting may wait for.
  uint32_t early_blocks;
  uint32_t reserved;
} wmk_rows_args;

int wmk_gather(const wmk_rows_args *args, wmk_stream stream);
int wmk_scatter(const wmk_rows_args *args, wmk_stream stream);

// The most bits that an order looks at.
#define WMK_MOST_ORDER_BITS 20

// The numbers 0 to count - 1 of the ids, sorted by bits [shift, shift + bits) of the ids, for reading memory that likes
// neighbours. Ids that agree in these bits come in no particular order. With `positions` only the ids there count, of
// which there are `count`, and their positions, all below 2^32, are sorted.
typedef struct wmk_order_args {
  const void *ids;
  uint64_t count;  // below 2^31
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  uint64_t *order;         // host; set to the address of the sorted positions (uint32), inside the scratch
  uint32_t id_bytes;
  uint32_t shift;
  uint32_t bits;  // 1 to WMK_MOST_ORDER_BITS
  uint32_t reserved;
  const int64_t *positions;  // may be NULL
} wmk_order_args;

int wmk_order(const wmk_order_args *args, wmk_stream stream);

// Stable split of ids by owner: owner k has the ids in [start_rows[k], start_rows[k + 1]); its bucket is
// bucket_of_owner[k]. Ids and their positions are written bucket by bucket, ids outside [0, start_rows[owners]) left
// out.
typedef struct wmk_bucket_args {
  const void *ids;
  uint64_t count;
  const uint64_t *start_rows;       // host, owners + 1 values
  const uint32_t *bucket_of_owner;  // host
  uint64_t owners;
  uint64_t buckets;  // 1 to WMK_MAX_BUCKETS
  void *ids_out;     // room for count ids of id_bytes
  int64_t *positions;
  uint64_t *counts;  // memory that both host and device can write, `buckets` values; there when the stream has passed
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  uint32_t id_bytes;
  uint32_t blocks;  // most blocks to use
} wmk_bucket_args;

#define WMK_MAX_BUCKETS 3072

int wmk_bucket(const wmk_bucket_args *args, wmk_stream stream);

// The distinct ids, ascending, and for every position the slot of its id. No id is negative or has bits from `bits` on.
typedef struct wmk_unique_args {
  const void *ids;
  uint64_t count;  // below 2^31
  void *unique;    // room for count ids of id_bytes
  int64_t *slots;
  uint64_t *distinct;  // memory that both host and device can write; there when the stream has passed
  uint64_t scratch;
  uint64_t scratch_bytes;
  uint64_t *needed_bytes;  // host; set and nothing else done where scratch is 0
  uint32_t id_bytes;
  uint32_t bits;  // 1 to 63
} wmk_unique_args;

int wmk_unique(const wmk_unique_args *args, wmk_stream stream);

// What a rank keeps in its own memory to meet others, followed by two arrays of `ranks` words: the addresses (of words
// on the boards of the others, as this rank maps them) where it posts its arrivals, and its own words where the others
// post theirs.
typedef struct wmk_board {
  uint64_t epoch;        // meetings that this rank has left
  uint64_t turns;        // of those, the ones that had a turn
  uint32_t blocks_done;  // of a kernel that arrives with its last block
  uint32_t ranks;
  uint32_t rank;
  uint32_t busy;  // a meeting that locks the board is going on
} wmk_board;

enum wmk_meet_part {
  WMK_MEET_ARRIVE = 1,
  WMK_MEET_WAIT = 2,
  // The next kernel of the stream may begin before the meeting ends, where it can (kernels/early.cuh).
  WMK_MEET_LETS_NEXT = 4,
};

// A meeting of ranks in the order of their streams. What a rank wrote before it arrived, the others see after they
// waited.
typedef struct wmk_meet_args {
  void *board;
  const uint32_t *abort;  // memory that the host writes: not 0 ends all waiting
  uint32_t parts;         // wmk_meet_part
  uint32_t reserved;
  // NULL, or on the host, counted on by meetings that both arrive and wait.
  struct wmk_meetings *so_far;
} wmk_meet_args;

// What meetings a board has had. One that has a turn begins once the one before it with a turn has ended, whatever streams they
// are on. In a recording none has: a graph's meetings are in the order of their stream, and the caller's to order among others.
// Where they are not, meetings still happen one after the other: from the first recording on all of them lock the board.
typedef struct wmk_meetings {
  uint64_t turns;
  uint32_t recorded;  // 1 from the first recording on
  uint32_t reserved;
} wmk_meetings;

int wmk_meet(const wmk_meet_args *args, wmk_stream stream);

// rows[r][c] = input[c] + r, the sum in the type itself, r going through a float.
typedef struct wmk_fill_args {
  const void *input;
  uint64_t output;
  uint64_t stride_bytes;
  uint64_t rows;
  uint64_t cols;
  uint32_t dtype;  // the enumerators of wholememory_dtype_t
  uint32_t reserved;
} wmk_fill_args;

int wmk_fill(const wmk_fill_args *args, wmk_stream stream);

// The runtime's words for a code that one of these functions returned.
const char *wmk_words(int code);

#ifdef __cplusplus
}
#endif

#include "args_graph.h"
