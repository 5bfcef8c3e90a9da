/* Files: load in order and round robin, by threads and with direct I/O, store and load again, and every refusal. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"
#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, BAD_VALUE = WHOLEMEMORY_INVALID_VALUE, SYSTEM = WHOLEMEMORY_SYSTEM_ERROR };
enum { STRIDE = 24, OFFSET = 5, ENTRY = 16, SALT = 3, FILES = 4, NAME = 160 };

static char folder[100];
static char names[FILES][NAME];
static const char* name_list[FILES];

static void set_for_all(wm_rank* r, const char* name, const char* value) {
  wm_meet(r);
  if (!r->threads || r->rank == 0) value ? setenv(name, value, 1) : unsetenv(name);
  wm_meet(r);
}

static unsigned char file_byte(int64_t record, int64_t column) { return (unsigned char)wm_value(WHOLEMEMORY_DT_INT8, record, column, SALT); }

/* FILES files that hold records 0.. of `entry` bytes between them (rank 0 writes, all know them). */
static void write_files(wm_rank* r, const int64_t counts[FILES], int64_t entry) {
  wm_meet(r);
  if (r->rank == 0) {
    int64_t record = 0;
    for (int f = 0; f < FILES; f++) {
      FILE* out = fopen(names[f], "wb");
      REQUIRE(out != NULL);
      for (int64_t i = 0; i < counts[f]; i++, record++)
        for (int64_t c = 0; c < entry; c++) fputc(file_byte(record, c), out);
      REQUIRE(fclose(out) == 0);
    }
  }
  wm_meet(r);
}

/* The record that local slot `slot` of a rank holds. */
static int64_t record_at(const wm_table* t, int64_t slot, int64_t first, int round_robin) {
  if (round_robin == 0) return first + slot;
  return (slot / round_robin * t->size + t->rank) * round_robin + slot % round_robin;
}

static void check_loaded(const wm_table* t, int64_t records, int64_t offset, int64_t entry, int round_robin, const char* what) {
  unsigned char* host;
  int64_t first, own = wm_table_local(t, &host, &first), stride = t->shape.stride;
  bool good = true;
  for (int64_t slot = 0; slot < own && good; slot++) {
    int64_t record = record_at(t, slot, first, round_robin);
    for (int64_t c = 0; c < stride && good; c++) {
      bool loaded = record < records && c >= offset && c < offset + entry;
      unsigned char got = host[slot * stride + c];
      unsigned char want = loaded ? file_byte(record, c - offset) : (unsigned char)wm_value(WHOLEMEMORY_DT_INT8, first + slot, c, 0);
      good = got == want;
      if (!good)
        FAILED("%s: %s, byte %lld of slot %lld (record %lld of %lld) is %u, not %u", what, t->shape.kind.name, (long long)c,
               (long long)(first + slot), (long long)record, (long long)records, got, want);
    }
  }
  free(host);
}

static wm_table bytes_table(wm_rank* r, const wm_kind* k, int64_t rows) {
  return wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT8, .rows = rows, .columns = STRIDE});
}

static void load_in_order(wm_rank* r, const wm_kind* k, const int64_t counts[FILES], const char* what) {
  int64_t records = counts[0] + counts[1] + counts[2] + counts[3];
  for (int extra = 0; extra <= 7; extra += 7) {
    wm_table t = bytes_table(r, k, records + extra);
    EXPECT(0, wholememory_load_from_file(t.handle, OFFSET, STRIDE, ENTRY, name_list, FILES, 0));
    check_loaded(&t, records, OFFSET, ENTRY, 0, what);
    wm_table_drop(&t);
  }
}

static void load_round_robin(wm_rank* r, const wm_kind* k, const int64_t counts[FILES], int round_robin, const char* what) {
  int64_t records = counts[0] + counts[1] + counts[2] + counts[3], turn = (int64_t)r->size * round_robin;
  int64_t rest = records % turn < round_robin ? records % turn : round_robin, per_rank = records / turn * round_robin + rest;
  wm_table t = bytes_table(r, k, per_rank * r->size);
  EXPECT(0, wholememory_load_from_file(t.handle, OFFSET, STRIDE, ENTRY, name_list, FILES, round_robin));
  check_loaded(&t, records, OFFSET, ENTRY, round_robin, what);
  wm_table_drop(&t);
}

static void loads(wm_rank* r, const wm_kind* k) {
  const int64_t shapes[][FILES] = {{7, 0, 13, 1}, {5, 0, 0, 0}, {0, 0, 0, 0}, {1, 1, 1, 1}, {301, 17, 400, 3}};
  const struct { const char *threads, *direct, *buffer; } ways[] = {{"1", NULL, NULL}, {"4", NULL, "1"}, {"3", "1", NULL}, {NULL, "1", "many"}};
  for (int shape = 0; shape < 5; shape++) {
    write_files(r, shapes[shape], ENTRY);
    for (int way = 0; way < 4; way++) {
      set_for_all(r, "WG_LOAD_THREADS_PER_RANK", ways[way].threads);
      set_for_all(r, "WG_LOAD_USE_DIRECTIO", ways[way].direct);
      set_for_all(r, "WG_LOAD_BUFFER_SIZE_MB", ways[way].buffer);
      char what[64];
      snprintf(what, sizeof what, "files %d, way %d", shape, way);
      load_in_order(r, k, shapes[shape], what);
      for (int round_robin = 1; round_robin <= 3 && shapes[shape][0] > 1; round_robin += 2)
        load_round_robin(r, k, shapes[shape], round_robin, what);
    }
  }
  set_for_all(r, "WG_LOAD_THREADS_PER_RANK", NULL);
  set_for_all(r, "WG_LOAD_USE_DIRECTIO", NULL);
  set_for_all(r, "WG_LOAD_BUFFER_SIZE_MB", NULL);
}

static void store_and_load(wm_rank* r, const wm_kind* k) {
  const int64_t sizes[] = {0, 3, 200};
  for (int i = 0; i < 3; i++) {
    wm_table t = bytes_table(r, k, sizes[i]);
    wm_table_fill(&t, 2);
    char mine[NAME];
    snprintf(mine, sizeof mine, "%s/part-%d", folder, r->rank);
    EXPECT(0, wholememory_store_to_file(t.handle, OFFSET, STRIDE, ENTRY, mine));
    unsigned char* host;
    int64_t first, own = wm_table_local(&t, &host, &first);
    struct stat s;
    CHECK(stat(mine, &s) == 0 && s.st_size == own * ENTRY);
    FILE* in = fopen(mine, "rb");
    REQUIRE(in != NULL);
    for (int64_t slot = 0; slot < own; slot++)
      for (int64_t c = 0; c < ENTRY; c++)
        if (!CHECK_EQ(fgetc(in), host[slot * STRIDE + OFFSET + c])) slot = own, c = ENTRY;
    fclose(in);
    free(host);
    /* The parts in rank order are the array: they load back into another table. */
    wm_table copy = bytes_table(r, k, sizes[i]);
    char parts[64][NAME];
    const char* list[64];
    for (int p = 0; p < r->size; p++) snprintf(parts[p], NAME, "%s/part-%d", folder, p), list[p] = parts[p];
    EXPECT(0, wholememory_load_from_file(copy.handle, OFFSET, STRIDE, ENTRY, list, r->size, 0));
    own = wm_table_local(&copy, &host, &first);
    for (int64_t slot = 0; slot < own; slot++)
      for (int64_t c = OFFSET; c < OFFSET + ENTRY; c++)
        if (!CHECK_EQ(host[slot * STRIDE + c], (unsigned char)wm_value(WHOLEMEMORY_DT_INT8, first + slot, c, 2))) slot = own, c = STRIDE;
    free(host);
    wm_table_drop(&copy);
    wm_table_drop(&t);
    wm_meet(r);
    unlink(mine);
  }
}

static void refused_loads(wm_rank* r, const wm_kind* k) {
  const int64_t counts[FILES] = {7, 0, 13, 1};
  const int64_t records = 21;
  const bool last = r->rank == r->size - 1;
  write_files(r, counts, ENTRY);
  wm_table t = bytes_table(r, k, records);
  wholememory_handle_t h = t.handle;
  char missing[NAME], odd[NAME], unreadable[NAME];
  snprintf(missing, NAME, "%s/missing", folder);
  snprintf(odd, NAME, "%s/odd", folder);
  snprintf(unreadable, NAME, "%s/unreadable", folder);
  const char *with_missing[] = {names[0], missing}, *with_null[] = {names[0], NULL}, *with_folder[] = {folder}, *with_odd[] = {odd};
  if (r->rank == 0) {
    FILE* out = fopen(odd, "wb");
    REQUIRE(out && fwrite("seventeen bytes..", 1, 17, out) == 17 && fclose(out) == 0);
    REQUIRE((out = fopen(unreadable, "wb")) && fclose(out) == 0 && chmod(unreadable, 0) == 0);
  }
  wm_meet(r);
#define LOAD(offset, stride, entry, list, count, robin) wholememory_load_from_file(h, offset, stride, entry, list, count, robin)
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, 0, name_list, FILES, 0));
  EXPECT(BAD_INPUT, LOAD(OFFSET, STRIDE, STRIDE - OFFSET + 1, name_list, FILES, 0));
  EXPECT(BAD_INPUT, LOAD(SIZE_MAX - 3, STRIDE, ENTRY, name_list, FILES, 0));
  EXPECT(BAD_INPUT, LOAD(0, 7, 7, name_list, FILES, 0));
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, name_list, -1, 0));
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, name_list, 65536, 0));
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, NULL, 1, 0));
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, with_null, 2, 0));
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, with_missing, 2, 0));
  CHECK_HAS(wholememory_get_last_error(), missing);
  EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, with_odd, 1, 0));
  CHECK_HAS(wholememory_get_last_error(), "17");
  int code = LOAD(0, STRIDE, 1, with_folder, 1, 0);
  CHECK(code == BAD_INPUT || code == SYSTEM);
  if (geteuid() != 0) EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, (const char*[]){unreadable}, 1, 0));
  else wm_leave_out(r, "an unreadable file: root reads every file");
  EXPECT(BAD_VALUE, LOAD(0, STRIDE, 8, name_list, FILES, 0)); /* twice the records */
  EXPECT(BAD_VALUE, LOAD(0, STRIDE, ENTRY, name_list, FILES, -1));
  EXPECT(BAD_INPUT, wholememory_load_from_file(NULL, 0, STRIDE, ENTRY, name_list, FILES, 0));
  EXPECT(0, LOAD(0, STRIDE, ENTRY, NULL, 0, 0));
  EXPECT(0, LOAD(0, STRIDE, ENTRY, name_list, 0, 0));
  if (r->size > 1) {
    /* The first ranks would get more records than they have room for. */
    EXPECT(BAD_VALUE, LOAD(0, STRIDE, ENTRY, name_list, FILES, (int)records));
    /* One rank alone is wrong: all hear of it. */
    EXPECT(BAD_INPUT, LOAD(0, STRIDE, ENTRY, last ? with_missing : name_list, 2, 0));
    CHECK_HAS(wholememory_get_last_error(), missing);
    EXPECT(BAD_INPUT, LOAD(0, STRIDE, last ? 0 : ENTRY, name_list, FILES, 0));
    const char* other[] = {names[2], names[0], names[0], names[0]};
    EXPECT(WHOLEMEMORY_LOGIC_ERROR, LOAD(0, STRIDE, ENTRY, name_list, last ? FILES - 1 : FILES, 0));
    EXPECT(WHOLEMEMORY_LOGIC_ERROR, LOAD(0, STRIDE, ENTRY, last ? other : name_list, 1, 0));
    CHECK_HAS(wholememory_get_last_error(), "112"); /* 7 records of 16 bytes */
    CHECK_HAS(wholememory_get_last_error(), "208");
  }
  /* No refusal wrote anything, and none left the ranks out of step. */
  check_loaded(&t, 0, 0, ENTRY, 0, "refused loads");
  /* A file that says it is longer than it is: the read comes up short. */
  const char* liar[] = {"/sys/devices/system/cpu/online"};
  struct stat s;
  if (stat(liar[0], &s) == 0 && s.st_size == 4096) {
    wm_table large = bytes_table(r, k, 4096 / ENTRY);
    EXPECT(SYSTEM, wholememory_load_from_file(large.handle, 0, STRIDE, ENTRY, liar, 1, 0));
    CHECK_HAS(wholememory_get_last_error(), liar[0]);
    wm_table_drop(&large);
  } else {
    wm_leave_out(r, "a short read: %s is not there", liar[0]);
  }
  EXPECT(0, LOAD(OFFSET, STRIDE, ENTRY, name_list, FILES, 0));
  check_loaded(&t, records, OFFSET, ENTRY, 0, "a load after refused ones");
#undef LOAD

  char mine[NAME], nowhere[NAME];
  snprintf(mine, NAME, "%s/part-%d", folder, r->rank);
  snprintf(nowhere, NAME, "%s/no/such/folder", folder);
  EXPECT(BAD_INPUT, wholememory_store_to_file(h, 2, 4, 4, mine));
  EXPECT(BAD_INPUT, wholememory_store_to_file(h, 0, STRIDE, 0, mine));
  EXPECT(BAD_INPUT, wholememory_store_to_file(h, 0, STRIDE, ENTRY, NULL));
  EXPECT(BAD_INPUT, wholememory_store_to_file(NULL, 0, STRIDE, ENTRY, mine));
  EXPECT(SYSTEM, wholememory_store_to_file(h, 0, STRIDE, ENTRY, last ? nowhere : mine));
  CHECK_HAS(wholememory_get_last_error(), nowhere);
  EXPECT(SYSTEM, wholememory_store_to_file(h, 0, STRIDE, ENTRY, r->rank == 0 ? "/dev/full" : mine));
  EXPECT(SYSTEM, wholememory_store_to_file(h, 0, STRIDE, ENTRY, last ? folder : mine));
  wm_table_drop(&t);
  unlink(mine);
  wm_meet(r);
  if (r->rank == 0) unlink(odd), unlink(unreadable);
}

static void body(wm_rank* r) {
  char made[sizeof folder] = "/tmp/c_tests_files_XXXXXX";
  if (r->rank == 0) REQUIRE(mkdtemp(made) != NULL);
  wm_share(r, made, sizeof made);
  if (!r->threads || r->rank == 0) {
    memcpy(folder, made, sizeof folder);
    for (int f = 0; f < FILES; f++) snprintf(names[f], NAME, "%s/file-%d", folder, f), name_list[f] = names[f];
  }
  wm_meet(r);
  for (int k = 0; k < WM_KINDS; k++) {
    if (!wm_kind_here(r, wm_world(r), &wm_kinds[k])) continue;
    loads(r, &wm_kinds[k]);
    store_and_load(r, &wm_kinds[k]);
    refused_loads(r, &wm_kinds[k]);
  }
  wm_meet(r);
  if (r->rank != 0) return;
  for (int f = 0; f < FILES; f++) unlink(names[f]);
  CHECK(rmdir(folder) == 0);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
