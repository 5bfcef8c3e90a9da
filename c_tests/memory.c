/* Memory handles: partitions, accessors, what each kind maps, that ranks see each other's writes. */
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, BAD_VALUE = WHOLEMEMORY_INVALID_VALUE, GRAIN = 24, MOST = 64 };

static bool is_mapped(const wm_kind* k) { return k->type == WHOLEMEMORY_MT_CONTINUOUS || k->type == WHOLEMEMORY_MT_CHUNKED; }
static bool is_flat(const wm_kind* k) {
  return k->type == WHOLEMEMORY_MT_CONTINUOUS || (k->type == WHOLEMEMORY_MT_CHUNKED && k->location == WHOLEMEMORY_ML_HOST);
}

static uint64_t word(size_t at, int salt) { return wm_hash(at, (uint64_t)salt); }

/* Bytes [0, bytes) of memory that starts `offset` bytes into the whole, as written by write_part. */
static void check_part(const void* memory, size_t bytes, size_t offset, int salt, const char* what) {
  if (!bytes) return;
  uint64_t* got = malloc(bytes);
  REQUIRE(got != NULL);
  wm_copy(got, memory, bytes);
  for (size_t i = 0; i < bytes / 8; i++)
    if (got[i] != word(offset + 8 * i, salt)) {
      FAILED("%s: the word at byte %zu is %#llx, not %#llx", what, offset + 8 * i, (unsigned long long)got[i],
             (unsigned long long)word(offset + 8 * i, salt));
      break;
    }
  free(got);
}

static void write_part(void* memory, size_t bytes, size_t offset, int salt) {
  uint64_t* words = malloc(bytes + 1);
  REQUIRE(words != NULL);
  for (size_t i = 0; i < bytes / 8; i++) words[i] = word(offset + 8 * i, salt);
  wm_copy(memory, words, bytes);
  free(words);
}

/* `want_rows[rank]` granules a rank; NULL asks for the default plan. */
static void one_handle(wm_rank* r, const wm_kind* k, size_t rows, size_t* custom) {
  wholememory_comm_t comm = wm_world(r), got_comm = NULL;
  wholememory_handle_t h = NULL;
  size_t per = (rows + (size_t)r->size - 1) / (size_t)r->size, offsets[MOST + 1] = {0};
  for (int i = 0; i < r->size; i++) {
    size_t first = (size_t)i * per < rows ? (size_t)i * per : rows;
    offsets[i + 1] = offsets[i] + GRAIN * (custom ? custom[i] : (first + per < rows ? per : rows - first));
  }
  if (!EXPECT(0, wholememory_malloc(&h, rows * GRAIN, comm, k->type, k->location, GRAIN, custom))) {
    wm_say("(%s, %zu rows)", k->name, rows);
    return;
  }
  EXPECT(0, wholememory_get_communicator(&got_comm, h));
  CHECK(got_comm == comm);
  CHECK_EQ(wholememory_get_memory_type(h), k->type);
  CHECK_EQ(wholememory_get_memory_location(h), k->location);
  CHECK_EQ(wholememory_get_total_size(h), rows * GRAIN);
  CHECK_EQ(wholememory_get_data_granularity(h), GRAIN);
  CHECK_EQ(wholememory_get_distributed_backend(h), WHOLEMEMORY_DB_NCCL);
  size_t sizes[MOST], starts[MOST + 1], bytes = 99, offset = 99;
  EXPECT(0, wholememory_get_rank_partition_sizes(sizes, h));
  EXPECT(0, wholememory_get_rank_partition_offsets(starts, h));
  for (int i = 0; i < r->size; i++) CHECK_EQ(sizes[i], offsets[i + 1] - offsets[i]);
  for (int i = 0; i <= r->size; i++) CHECK_EQ(starts[i], offsets[i]);
  void *mine, *whole = comm;
  EXPECT(0, wholememory_get_local_memory(&mine, &bytes, &offset, h));
  CHECK_EQ(bytes, sizes[r->rank]);
  CHECK_EQ(offset, offsets[r->rank]);
  EXPECT(0, wholememory_get_local_memory(NULL, NULL, NULL, h));
  bytes = offset = 99;
  EXPECT(0, wholememory_get_local_size(&bytes, h));
  EXPECT(0, wholememory_get_local_offset(&offset, h));
  CHECK_EQ(bytes, sizes[r->rank]);
  CHECK_EQ(offset, offsets[r->rank]);
  /* Host memory that ranks share begins as zeros. */
  if (is_mapped(k) && k->location == WHOLEMEMORY_ML_HOST)
    for (size_t i = 0; i < bytes; i++)
      if (!CHECK(((char*)mine)[i] == 0)) break;
  for (int salt = 1; salt <= 2; salt++) {
    if (bytes) write_part(mine, bytes, offset, salt);
    OK(wholememory_communicator_barrier(comm));
    for (int i = -1; i <= r->size; i++) {
      void* other = comm;
      size_t other_bytes = 99, other_offset = 99;
      bool in_range = i >= 0 && i < r->size;
      EXPECT(in_range && is_mapped(k) ? 0 : BAD_INPUT, wholememory_get_rank_memory(&other, &other_bytes, &other_offset, i, h));
      if (!in_range) {
        CHECK(other == comm && other_bytes == 99 && other_offset == 99);
      } else if (!is_mapped(k)) {
        CHECK(other == NULL && other_bytes == 0 && other_offset == 0);
      } else {
        CHECK(other_bytes == sizes[i] && other_offset == offsets[i]);
        check_part(other, sizes[i], offsets[i], salt, k->name);
        EXPECT(0, wholememory_get_rank_memory(NULL, NULL, NULL, i, h));
      }
    }
    EXPECT(is_flat(k) ? 0 : BAD_INPUT, wholememory_get_global_pointer(&whole, h));
    if (is_flat(k)) check_part(whole, rows * GRAIN, 0, salt, k->name);
    else CHECK(whole == NULL);
    OK(wholememory_communicator_barrier(comm));
  }
  wholememory_gref_t ref;
  memset(&ref, 0x55, sizeof ref);
  bool equal = true;
  for (int i = 0; i < r->size - 1; i++) equal = equal && sizes[i] == sizes[0];
  equal = equal && sizes[r->size - 1] <= sizes[0];
  EXPECT(is_mapped(k) ? 0 : BAD_INPUT, wholememory_get_global_reference(&ref, h));
  CHECK_EQ(ref.world_size, r->size);
  if (is_flat(k)) {
    CHECK(ref.pointer == whole && ref.rank_memory_offsets == NULL && ref.stride == 0 && !ref.same_chunk);
  } else if (!is_mapped(k)) {
    CHECK(ref.pointer == NULL && ref.rank_memory_offsets == NULL && ref.stride == 0 && !ref.same_chunk);
  } else if (rows) {
    void* chunks[MOST];
    size_t edges[MOST + 1];
    wm_copy(chunks, ref.pointer, sizeof(void*) * (size_t)r->size);
    wm_copy(edges, ref.rank_memory_offsets, sizeof(size_t) * (size_t)(r->size + 1));
    for (int i = 0; i <= r->size; i++) CHECK_EQ(edges[i], offsets[i]);
    for (int i = 0; i < r->size; i++) check_part(chunks[i], sizes[i], offsets[i], 2, "a chunk by its reference");
    CHECK(ref.stride != 0);
    /* The default plan's chunks are equal by definition, even where the last ones are cut short. */
    if (!custom) CHECK_EQ(ref.stride, per * GRAIN);
    else if (equal) CHECK_EQ(ref.stride, sizes[0]);
    CHECK_EQ(ref.same_chunk, !custom || equal);
  }
  wholememory_comm_t pair = comm;
  int hierarchy = k->type == WHOLEMEMORY_MT_HIERARCHY ? 0 : WHOLEMEMORY_NOT_SUPPORTED;
  EXPECT(hierarchy, wholememory_get_local_communicator(&pair, h));
  EXPECT(hierarchy, wholememory_get_cross_communicator(&pair, h));
  OK(wholememory_communicator_barrier(comm));
  EXPECT(0, wholememory_free(h));
  EXPECT(BAD_INPUT, wholememory_free(h));
  EXPECT(BAD_INPUT, wholememory_get_local_size(&bytes, h));
}

static void refusals(wm_rank* r, const wm_kind* k) {
  wholememory_comm_t comm = wm_world(r);
  wholememory_handle_t h = (wholememory_handle_t)comm, none = h;
  size_t total = 8 * (size_t)r->size * GRAIN, partition[MOST];
  EXPECT(BAD_VALUE, wholememory_malloc(&h, 100, comm, k->type, k->location, 0, NULL));
  EXPECT(BAD_VALUE, wholememory_malloc(&h, 100, comm, k->type, k->location, 16, NULL));
  CHECK(h == none || h == NULL);
  EXPECT(BAD_INPUT, wholememory_malloc(NULL, 96, comm, k->type, k->location, 16, NULL));
  EXPECT(BAD_INPUT, wholememory_malloc(&h, 96, NULL, k->type, k->location, 16, NULL));
  if (r->size == 1) return;
  for (int i = 0; i < r->size; i++) partition[i] = 8;
  partition[r->size - 1] = 9;
  EXPECT(BAD_VALUE, wholememory_malloc(&h, total, comm, k->type, k->location, GRAIN, partition));
  partition[r->size - 1] = 0;
  partition[0] = 16;
  EXPECT(BAD_VALUE, wholememory_malloc(&h, total, comm, k->type, k->location, GRAIN, partition));
  partition[r->size - 1] = (size_t)8 + ((size_t)1 << 63);
  partition[0] = (size_t)8 + ((size_t)1 << 63);
  EXPECT(BAD_VALUE, wholememory_malloc(&h, total, comm, k->type, k->location, GRAIN, partition));
  CHECK(h == none || h == NULL);
  /* More than there is. */
  EXPECT(WHOLEMEMORY_OUT_OF_MEMORY, wholememory_malloc(&h, (size_t)1 << 46, comm, k->type, k->location, (size_t)1 << 20, NULL));
  CHECK(h == none || h == NULL);
  OK(wholememory_communicator_barrier(comm));
}

static void body(wm_rank* r) {
  for (int i = 0; i < WM_KINDS; i++) {
    const wm_kind* k = &wm_kinds[i];
    if (!wm_kind_here(r, wm_world(r), k)) continue;
    const size_t rows[] = {0, 1, 3, 5, 9, 1000, 100003};
    for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) one_handle(r, k, rows[j], NULL);
    size_t uneven[MOST], cut[MOST], uneven_rows = 0, cut_rows = 0;
    for (int j = 0; j < r->size; j++) {
      uneven_rows += uneven[j] = (size_t)(1 + 5 * (j % 3) + j);
      cut_rows += cut[j] = j == r->size - 1 ? 2 : 4;
    }
    one_handle(r, k, uneven_rows, uneven);
    one_handle(r, k, cut_rows, cut);
    refusals(r, k);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
