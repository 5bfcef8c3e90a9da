// Gather and scatter against a reference on the host: every conversion and path, index widths, strides, odd alignments,
// partitions, ids out of range. All bytes of the written memory are compared, so what must not be touched is checked
// too.

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "check.h"

namespace {

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double read_float(uint32_t dtype, const uint8_t *at) {
  switch (dtype) {
    case dtype_float: {
      float x;
      memcpy(&x, at, 4);
      return x;
    }
    case dtype_half: {
      _Float16 x;
      memcpy(&x, at, 2);
      return static_cast<float>(x);
    }
    case dtype_bf16: {
      uint16_t x;
      memcpy(&x, at, 2);
      return from_bf16(x);
    }
    default: {
      double x;
      memcpy(&x, at, 8);
      return x;
    }
  }
}

void write_float(uint32_t dtype, uint8_t *at, double value) {
  switch (dtype) {
    case dtype_float: {
      const float x = static_cast<float>(value);
      memcpy(at, &x, 4);
      return;
    }
    case dtype_half: {
      const _Float16 x = static_cast<_Float16>(static_cast<float>(value));
      memcpy(at, &x, 2);
      return;
    }
    case dtype_bf16: {
      const uint16_t x = to_bf16(static_cast<float>(value));
      memcpy(at, &x, 2);
      return;
    }
    default:
      memcpy(at, &value, 8);
  }
}

// One element as the contract has it.
void convert_one(uint32_t from, const uint8_t *source, uint32_t to, uint8_t *target) {
  if (from == to) {
    memcpy(target, source, dtype_bytes(from));
  } else if (is_float(from)) {
    write_float(to, target, read_float(from, source));
  } else {
    int64_t x = 0;
    memcpy(&x, source, dtype_bytes(from));
    const int unused = 64 - 8 * dtype_bytes(from);
    x = static_cast<int64_t>(static_cast<uint64_t>(x) << unused) >> unused;
    memcpy(target, &x, dtype_bytes(to));
  }
}

bool is_nan(uint32_t dtype, const uint8_t *at) {
  return is_float(dtype) && read_float(dtype, at) != read_float(dtype, at);
}

struct Case {
  bool scatter;
  uint32_t from, to;  // what is read and written
  int id_bytes;
  int places;
  uint32_t path, access;
  bool ordered;
  bool selected;
  int64_t rows, count;
  int cols;
  uint64_t table_stride, plain_stride, column_bytes;
  std::vector<uint64_t> starts;
  uint32_t blocks;

  std::string text() const {
    char words[400];
    snprintf(words, sizeof words,
             "%s %s->%s ids of %d bytes, %d places, path %u access %u%s, rows %lld count %lld cols %d, strides table "
             "%llu plain %llu, "
             "window at %llu, blocks %u",
             scatter ? "scatter" : "gather", dtype_name(from), dtype_name(to), id_bytes, places, path, access,
             ordered    ? " ordered"
             : selected ? " selected"
                        : "",
             static_cast<long long>(rows), static_cast<long long>(count), cols,
             static_cast<unsigned long long>(table_stride), static_cast<unsigned long long>(plain_stride),
             static_cast<unsigned long long>(column_bytes), blocks);
    return words;
  }
};

// Memory that holds rows at chosen offsets, poisoned everywhere else.
struct Image {
  std::vector<uint8_t> bytes;
  explicit Image(size_t size) : bytes(size, 0xa5) {}
};

void fill_element(Random &random, uint32_t dtype, uint8_t *at) {
  const uint64_t bits = random.next();
  memcpy(at, &bits, dtype_bytes(dtype));
  if (!is_float(dtype) || random.below(4) == 0) return;
  // Most values near 1 with a few bits, so that roundings and ties are met; the rest are any pattern.
  const double value =
      (static_cast<double>(static_cast<int64_t>(bits >> 40)) / (1 << 11) - 2048) * (random.below(8) == 0 ? 1e-7 : 1.0);
  write_float(dtype, at, value);
}

std::vector<uint64_t> partition(Random &random, int places, int64_t rows) {
  std::vector<uint64_t> starts(places + 1, rows);
  starts[0] = 0;
  if (random.below(2) == 0) {
    const uint64_t part = (rows + places - 1) / places;
    for (int k = 1; k < places; k++) starts[k] = std::min<uint64_t>(rows, k * part);
  } else {
    for (int k = 1; k < places; k++) starts[k] = random.below(rows + 1);
    std::sort(starts.begin(), starts.end());
  }
  return starts;
}

// The device memory that cases use in turn.
struct Ground {
  Device table, plain, ids, order, positions;
  explicit Ground(size_t table_bytes = 24 << 20, size_t plain_bytes = 24 << 20)
      : table(table_bytes), plain(plain_bytes), ids(1 << 20), order(1 << 20), positions(1 << 20) {}
};

// Runs a case; true if every byte is right.
bool run(Ground &ground, Random &random, const Case &c, uint64_t table_shift, uint64_t plain_shift, int64_t *compared,
         bool tight = false) {
  const uint32_t table_dtype = c.scatter ? c.to : c.from, plain_dtype = c.scatter ? c.from : c.to;
  const uint64_t table_elt = dtype_bytes(table_dtype), plain_elt = dtype_bytes(plain_dtype);
  // Each place's rows lie apart from the others'; a hole of its own misalignment follows each.
  std::vector<uint64_t> at(c.places);
  uint64_t end = table_shift;
  for (int k = 0; k < c.places; k++) {
    at[k] = end;
    end += (c.starts[k + 1] - c.starts[k]) * c.table_stride + c.column_bytes + c.cols * table_elt;
    end = (end + 255) / 256 * 256 + table_shift;
  }
  // Tight memory ends with the last row, so that a memory checker sees what reads or writes beyond it.
  const uint64_t table_last = c.rows > 0 ? (c.rows - 1) * c.table_stride + c.column_bytes + c.cols * table_elt : 0;
  Image table(tight ? table_last : end + 256);
  Image plain(plain_shift + (c.count - 1) * c.plain_stride + c.cols * plain_elt + (tight ? 0 : 256));
  if (table.bytes.size() > ground.table.bytes() || plain.bytes.size() > ground.plain.bytes()) return true;
  auto table_row = [&](int64_t id) {
    int k = 0;
    while (!(static_cast<uint64_t>(id) < c.starts[k + 1])) k++;
    return at[k] + c.column_bytes + (id - c.starts[k]) * c.table_stride;
  };
  auto plain_row = [&](int64_t i) { return plain_shift + i * c.plain_stride; };

  std::vector<int64_t> ids(c.count);
  for (auto &id : ids) {
    const uint64_t kind = random.below(10);
    const int64_t limit = c.id_bytes == 4 ? INT32_MAX : INT64_MAX;
    id = kind == 0     ? -1 - static_cast<int64_t>(random.below(c.id_bytes == 4 ? 1u << 31 : 1ull << 63))
         : kind == 1   ? c.rows + static_cast<int64_t>(random.below(limit - c.rows))
         : c.rows == 0 ? 0
                       : static_cast<int64_t>(random.below(c.rows));
  }
  if (c.scatter) {
    // Which of equal ids wins is open, so every id is written once.
    std::vector<bool> seen(c.rows);
    for (auto &id : ids) {
      if (id < 0 || id >= c.rows) continue;
      if (seen[id]) {
        id = -1;
      } else {
        seen[id] = true;
      }
    }
  }
  if (c.scatter) {
    for (int64_t i = 0; i < c.count; i++) {
      for (int e = 0; e < c.cols; e++) fill_element(random, plain_dtype, &plain.bytes[plain_row(i) + e * plain_elt]);
    }
  } else {
    for (int64_t id = 0; id < c.rows; id++) {
      for (int e = 0; e < c.cols; e++) fill_element(random, table_dtype, &table.bytes[table_row(id) + e * table_elt]);
    }
  }
  Image &written = c.scatter ? table : plain;
  Image wanted = written;
  std::vector<uint8_t> nan(written.bytes.size(), 0);
  std::vector<uint32_t> order(c.count);
  for (int64_t i = 0; i < c.count; i++) order[i] = i;
  for (int64_t i = c.count - 1; i > 0; i--) std::swap(order[i], order[random.below(i + 1)]);
  // Of positions in wide numbers only some are given; what they leave out stays as it was.
  const int64_t chosen = c.selected ? (c.count + 1) / 2 : c.count;
  for (int64_t k = 0; k < chosen; k++) {
    const int64_t i = order[k];
    if (ids[i] < 0 || ids[i] >= c.rows) continue;
    for (int e = 0; e < c.cols; e++) {
      const uint64_t in_table = table_row(ids[i]) + e * table_elt, in_plain = plain_row(i) + e * plain_elt;
      if (c.scatter) {
        convert_one(c.from, &plain.bytes[in_plain], c.to, &wanted.bytes[in_table]);
        if (c.from != c.to && is_nan(c.to, &wanted.bytes[in_table])) nan[in_table] = 1;
      } else {
        convert_one(c.from, &table.bytes[in_table], c.to, &wanted.bytes[in_plain]);
        if (c.from != c.to && is_nan(c.to, &wanted.bytes[in_plain])) nan[in_plain] = 1;
      }
    }
  }

  ground.table.put(table.bytes);
  ground.plain.put(plain.bytes);
  if (c.id_bytes == 8) {
    ground.ids.put(ids);
  } else {
    ground.ids.put(std::vector<int32_t>(ids.begin(), ids.end()));
  }
  if (c.ordered) ground.order.put(order);
  if (c.selected) ground.positions.put(std::vector<int64_t>(order.begin(), order.begin() + chosen));
  std::vector<uint64_t> bases;
  for (uint64_t begin : at) bases.push_back(ground.table.address() + begin);

  wmk_rows_args args{};
  args.table = {bases.data(),   c.starts.data(), static_cast<uint64_t>(c.places),
                c.column_bytes, c.table_stride,  static_cast<uint64_t>(c.rows)};
  args.ids = ground.ids.as<void>();
  args.count = chosen;
  args.positions = c.selected ? ground.positions.as<int64_t>() : nullptr;
  args.plain_rows = c.selected ? c.count : 0;
  args.order = c.ordered ? ground.order.as<uint32_t>() : nullptr;
  args.plain = ground.plain.address() + plain_shift;
  args.plain_stride_bytes = c.plain_stride;
  args.id_bytes = c.id_bytes;
  args.table_dtype = table_dtype;
  args.plain_dtype = plain_dtype;
  args.path = c.path;
  args.access_bytes = c.access;
  args.cols = c.cols;
  args.blocks = c.blocks;
  CUDA((c.scatter ? wmk_scatter : wmk_gather)(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  const std::vector<uint8_t> got = (c.scatter ? ground.table : ground.plain).get<uint8_t>(wanted.bytes.size());
  const int elt = dtype_bytes(c.to);
  for (size_t i = 0; i < got.size();) {
    if (nan[i]) {
      if (!is_nan(c.to, &got[i])) {
        fprintf(stderr, "WRONG %s: no NaN at byte %zu\n", c.text().c_str(), i);
        return false;
      }
      i += elt;
    } else if (got[i] != wanted.bytes[i]) {
      fprintf(stderr, "WRONG %s: byte %zu of %zu is %02x, wanted %02x (was %02x); shifts table %llu plain %llu\n",
              c.text().c_str(), i, got.size(), got[i], wanted.bytes[i], written.bytes[i],
              static_cast<unsigned long long>(table_shift), static_cast<unsigned long long>(plain_shift));
      return false;
    } else {
      i++;
    }
  }
  *compared += static_cast<int64_t>(got.size());
  return true;
}

}  // namespace

void check_rows(Tally &tally, int rounds, Size size) {
  Ground ground;
  Random random{2026};
  std::map<std::string, int> of_path;
  int64_t compared = 0;
  const bool few = size == Size::few;
  const int all_places[] = {1, 2, 3, 5, 8, 9, 16, 17, 100};
  int pair = 0;
  for (int round = 0; round < rounds; round++) {
    for (uint32_t from = dtype_float; from <= dtype_int8; from++) {
      for (uint32_t to = dtype_float; to <= dtype_int8; to++) {
        if (is_float(from) != is_float(to)) continue;
        pair++;
        for (int nth = 0; nth < 9; nth++) {
          const int places = all_places[nth];
          for (int variant = 0; variant < 4; variant++) {
            // Few: the kernels for one place, for a few and for many, and each way both aligned and not.
            if (few && nth != 0 && (nth < 7 ? nth != 1 + pair % 6 : nth != 7 + pair % 2)) continue;
            if (few && nth != 0 && (variant >> 1) != (pair + nth / 7) % 2) continue;
            const bool aligned = few ? nth != 0 || variant < 2 : random.below(2);
            Case c{};
            c.scatter = variant & 1;
            c.id_bytes = variant & 2 ? 8 : 4;
            c.from = from;
            c.to = to;
            c.places = places;
            c.ordered = random.below(3) == 0;
            c.selected = !c.ordered && random.below(3) == 0;
            c.rows = random.one_of<int64_t>({0, 1, 2, 7, 100, 333, few ? 100 : 2000});
            c.count = random.one_of<int64_t>({1, 2, 3, 31, 33, 255, few ? 100 : 1001});
            c.cols = static_cast<int>(random.below(3) ? 1 + random.below(70)
                                                      : random.one_of<uint64_t>({1, 8, 16, 32, 127, 128, 256, 300}));
            if (few && aligned && from != to) c.cols = (c.cols + 15) / 16 * 16;
            c.blocks = random.one_of<uint32_t>({1, 2, 7, 528});
            const int table_elt = dtype_bytes(c.scatter ? to : from), plain_elt = dtype_bytes(c.scatter ? from : to);
            uint64_t table_shift, plain_shift;
            if (aligned) {
              // Everything a multiple of 16 bytes but perhaps the length.
              c.column_bytes = 16 * random.below(3);
              c.table_stride = (c.column_bytes + c.cols * table_elt + 15) / 16 * 16;
              c.plain_stride = (c.cols * plain_elt + 15) / 16 * 16;
              table_shift = 16 * random.below(4);
              plain_shift = 16 * random.below(4);
            } else {
              c.column_bytes = random.below(5) * table_elt;
              c.table_stride = c.column_bytes + (c.cols + random.one_of<uint64_t>({0, 0, 1, 3, 8})) * table_elt;
              c.plain_stride = (c.cols + random.one_of<uint64_t>({0, 0, 1, 5, 8})) * plain_elt;
              table_shift = random.below(16) * table_elt;
              plain_shift = random.below(16) * plain_elt;
            }
            c.starts = partition(random, places, c.rows);
            const uint64_t of_table = table_shift | c.column_bytes | c.table_stride,
                           of_plain = plain_shift | c.plain_stride;
            // What the library would choose, and everything else that is possible.
            std::vector<std::pair<int, int>> paths = {{0, 0}};
            if (from == to) {
              for (int access : {1, 2, 4, 8, 16}) {
                if ((of_table | of_plain | static_cast<uint64_t>(c.cols * table_elt)) % access == 0)
                  paths.push_back({path_move, access});
              }
              if (table_elt <= 4) paths.push_back({path_shift, 0});
            } else {
              const int piece = piece_elements(table_elt, plain_elt);
              if (of_table % (piece * table_elt) == 0 && of_plain % (piece * plain_elt) == 0 && c.cols % piece == 0) {
                paths.push_back({path_convert, 0});
              }
              paths.push_back({path_convert_shift, 0});
            }
            for (auto [path, access] : paths) {
              c.path = path;
              c.access = access;
              char name[64];
              snprintf(name, sizeof name, "path %d access %d", path, access);
              of_path[name]++;
              tally.count(run(ground, random, c, table_shift, plain_shift, &compared));
            }
          }
        }
      }
    }
  }
  for (const auto &[name, cases] : of_path) printf("  rows, %s: %d cases\n", name.c_str(), cases);
  printf("  rows: %.1f MB of results compared\n", compared / 1e6);
}

void check_rows_in_tight_memory(Tally &tally, Size size) {
  Random random{31};
  int64_t compared = 0;
  for (uint32_t from = dtype_float; from <= dtype_int8; from++) {
    for (uint32_t to = dtype_float; to <= dtype_int8; to++) {
      if (is_float(from) != is_float(to) || (from == to && dtype_bytes(from) == 8)) continue;
      for (int variant = 0; variant < (size == Size::few ? 2 : 24); variant++) {
        Case c{};
        c.scatter = variant & 1;
        c.id_bytes = 8;
        c.from = from;
        c.to = to;
        c.places = 1;
        c.rows = 1 + random.below(40);
        c.count = 1 + random.below(40);
        c.cols = 1 + random.below(40);
        c.blocks = 4;
        const int table_elt = dtype_bytes(c.scatter ? to : from), plain_elt = dtype_bytes(c.scatter ? from : to);
        c.column_bytes = random.below(3) * table_elt;
        c.table_stride = c.column_bytes + (c.cols + random.below(3)) * table_elt;
        c.plain_stride = (c.cols + random.below(3)) * plain_elt;
        c.starts = {0, static_cast<uint64_t>(c.rows)};
        c.path = from == to ? path_shift : path_convert_shift;
        Ground ground((c.rows - 1) * c.table_stride + c.column_bytes + c.cols * table_elt,
                      (c.count - 1) * c.plain_stride + c.cols * plain_elt);
        tally.count(run(ground, random, c, 0, 0, &compared, true));
      }
    }
  }
}

// More pieces than one launch takes: the cut calls must give what the uncut one gives.
void check_large(Tally &tally) {
  const uint64_t rows = 1 << 20, count = (1u << 27) + 5;
  const int bytes = 16;
  Device table(rows * bytes), ids(count * 4), one(count * bytes), other(count * bytes);
  std::vector<uint64_t> values(rows * bytes / 8);
  Random random{7};
  for (auto &v : values) v = random.next();
  table.put(values);
  std::vector<int32_t> numbers(count);
  for (auto &n : numbers) n = static_cast<int32_t>(random.below(rows));
  ids.put(numbers);
  const uint64_t base = table.address();
  wmk_rows_args args{};
  args.table = {&base, nullptr, 1, 0, bytes, rows};
  args.ids = ids.as<void>();
  args.count = count;
  args.plain_stride_bytes = bytes;
  args.id_bytes = 4;
  args.table_dtype = args.plain_dtype = dtype_int8;
  args.path = path_move;
  args.cols = bytes;
  args.blocks = 528;
  for (int access : {1, 16}) {
    Device &output = access == 1 ? one : other;
    output.poison();
    args.plain = output.address();
    args.access_bytes = access;
    CUDA(wmk_gather(&args, nullptr));
  }
  CUDA(cudaDeviceSynchronize());
  const auto a = one.get<uint8_t>(count * bytes), b = other.get<uint8_t>(count * bytes);
  bool right = a == b;
  for (uint64_t i : {uint64_t{0}, count / 2, count - 1}) {
    right = right && memcmp(&a[i * bytes], &values[numbers[i] * (bytes / 8)], bytes) == 0;
  }
  tally.count(right);
  if (!right) fprintf(stderr, "WRONG: a gather of %llu pieces\n", static_cast<unsigned long long>(count * bytes));
}
