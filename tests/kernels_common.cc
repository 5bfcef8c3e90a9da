// Runs the formulas of kernels/common/ on numbers from stdin; kernels_common.rs compares them with those of the
// library.

#include "common/cache.h"
#include "common/dtype.h"
#include "common/launch.h"
#include "common/optimizer.h"
#include "common/pcg.h"
#include "common/place.h"
#include "common/round_robin.h"
#include "common/sample.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace {

std::vector<char> input() {
  std::vector<char> bytes;
  char block[65536];
  for (size_t got; (got = fread(block, 1, sizeof(block), stdin)) > 0;) {
    bytes.insert(bytes.end(), block, block + got);
  }
  return bytes;
}

template <typename T>
std::vector<T> values(const std::vector<char> &bytes) {
  std::vector<T> list(bytes.size() / sizeof(T));
  if (!list.empty()) memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
  return list;
}

template <typename T>
void put(const T &value) {
  fwrite(&value, sizeof(value), 1, stdout);
}

template <typename From, typename To>
void convert_all() {
  for (From value : values<From>(input())) {
    put(wmk::convert<To, From>::from(value));
  }
}

template <typename From>
bool convert_from(uint32_t to) {
  switch (to) {
    case wmk::dtype_float:
      convert_all<From, float>();
      return true;
    case wmk::dtype_half:
      convert_all<From, wmk::half_bits>();
      return true;
    case wmk::dtype_double:
      convert_all<From, double>();
      return true;
    case wmk::dtype_bf16:
      convert_all<From, wmk::bf16_bits>();
      return true;
    default:
      return false;
  }
}

template <typename From>
bool cast_from(uint32_t to) {
  switch (to) {
    case wmk::dtype_int:
      convert_all<From, int32_t>();
      return true;
    case wmk::dtype_int64:
      convert_all<From, int64_t>();
      return true;
    case wmk::dtype_int16:
      convert_all<From, int16_t>();
      return true;
    case wmk::dtype_int8:
      convert_all<From, int8_t>();
      return true;
    default:
      return false;
  }
}

bool convert(uint32_t from, uint32_t to) {
  if (!wmk::is_dtype(from) || !wmk::is_dtype(to) || wmk::is_float(from) != wmk::is_float(to)) return false;
  switch (from) {
    case wmk::dtype_float:
      return convert_from<float>(to);
    case wmk::dtype_half:
      return convert_from<wmk::half_bits>(to);
    case wmk::dtype_double:
      return convert_from<double>(to);
    case wmk::dtype_bf16:
      return convert_from<wmk::bf16_bits>(to);
    case wmk::dtype_int:
      return cast_from<int32_t>(to);
    case wmk::dtype_int64:
      return cast_from<int64_t>(to);
    case wmk::dtype_int16:
      return cast_from<int16_t>(to);
    default:
      return cast_from<int8_t>(to);
  }
}

// Every id as an address and whether rows of the same memory lie on both sides of it; 0 and 0 for ids outside [0,
// rows).
template <int most>
void find_all(const wmk::places<most> &table, const uint64_t *ids, size_t count) {
  for (size_t i = 0; i < count; i++) {
    wmk::found_row row = {0, false};
    if (ids[i] < table.rows) row = wmk::find_row(table, ids[i]);
    put(row.address);
    put(static_cast<uint64_t>(row.interior));
  }
}

// Input: ranks, offset, stride, rows; bases (one without ranks); first rows (none without ranks); ids.
bool addresses() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  const size_t ranks = in[0], bases = 4;
  const size_t starts = bases + (ranks == 0 ? 1 : ranks), ids = starts + (ranks == 0 ? 0 : ranks + 1);
  const uint64_t *start_rows = ranks == 0 ? nullptr : in.data() + starts;
  const size_t places = ranks == 0 ? 1 : ranks;
  auto find = [&](auto most) {
    find_all(wmk::pack_places<most.value>(in.data() + bases, start_rows, places, in[1], in[2], in[3]), in.data() + ids,
             in.size() - ids);
  };
  if (places <= wmk::one_place) find(std::integral_constant<int, wmk::one_place>());
  if (places > wmk::one_place && places <= wmk::few_places) find(std::integral_constant<int, wmk::few_places>());
  if (places > wmk::few_places) find(std::integral_constant<int, wmk::many_places>());
  return places <= wmk::many_places;
}

// Input: pairs of seed and subsequence.
bool draws() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 1 < in.size(); i += 2) {
    wmk::pcg pcg(in[i], in[i + 1]);
    put(static_cast<uint64_t>(pcg.u32()));
    put(pcg.u64());
    put(static_cast<uint64_t>(pcg.i31()));
    put(static_cast<uint64_t>(pcg.i63()));
    put(static_cast<uint64_t>(wmk::same_bits<uint32_t>(pcg.f32())));
    pcg.skip(in[i]);
    put(pcg.u64());
    const uint64_t half = in[i + 1] / 2;
    const wmk::leap leap = wmk::leap::of(half).then(wmk::leap::of(in[i + 1] - half));
    put(wmk::stream_of(in[i], in[i + 1], leap).u64());
  }
  return true;
}

// Input: groups of seed, subsequence and the bits of a weight.
bool keys() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 2 < in.size(); i += 3) {
    const float weight = wmk::same_bits<float>(static_cast<uint32_t>(in[i + 2]));
    wmk::pcg pcg(in[i], in[i + 1]);
    const float minus_u = wmk::minus_uniform(pcg);
    put(static_cast<uint64_t>(wmk::same_bits<uint32_t>(minus_u)));
    put(static_cast<uint64_t>(wmk::weighted_rank(weight, minus_u)));
    put(static_cast<uint64_t>(wmk::weighted_rank(static_cast<double>(weight), minus_u)));
    put(static_cast<uint64_t>(pcg.u32()));
  }
  return true;
}

bool layouts() {
  for (uint64_t most : values<uint64_t>(input())) {
    put(static_cast<uint64_t>(wmk::unweighted_threads(static_cast<uint32_t>(most))));
    put(static_cast<uint64_t>(wmk::weighted_threads(static_cast<uint32_t>(most))));
  }
  return true;
}

// Input: groups of columns, bytes of an element read and written, whether they convert, the bits of both sides.
bool shapes() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 5 < in.size(); i += 6) {
    wmk::row_facts facts;
    facts.cols = in[i];
    facts.from_bytes = static_cast<uint32_t>(in[i + 1]);
    facts.to_bytes = static_cast<uint32_t>(in[i + 2]);
    facts.converts = in[i + 3] != 0;
    facts.from_bits = in[i + 4];
    facts.to_bits = in[i + 5];
    wmk::row_shape shape = wmk::shape_of(facts);
    put(static_cast<uint64_t>(shape.path));
    put(static_cast<uint64_t>(shape.access_bytes));
    put(shape.pieces_per_row);
  }
  return true;
}

// Input: groups of centers, the fewest and the most seats of a tile.
bool seats() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 2 < in.size(); i += 3) {
    const uint32_t fewest = static_cast<uint32_t>(in[i + 1]), most = static_cast<uint32_t>(in[i + 2]);
    put(static_cast<uint64_t>(wmk::seats_of(in[i], fewest, most)));
  }
  return true;
}

// Input: pairs of pieces a row and a piece's number.
bool splits() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 1 < in.size(); i += 2) {
    put(static_cast<uint64_t>(
        wmk::row_of(wmk::split_of(static_cast<uint32_t>(in[i])), static_cast<uint32_t>(in[i + 1]))));
  }
  return true;
}

bool accesses() {
  for (uint64_t bits : values<uint64_t>(input())) {
    put(static_cast<uint64_t>(wmk::access_bytes(bits)));
  }
  return true;
}

// Block rows, ranks, rows of a rank, rows, an id: the row of the table.
bool dealt() {
  std::vector<uint64_t> list = values<uint64_t>(input());
  for (size_t i = 0; i + 5 <= list.size(); i += 5) {
    put(wmk::dealt_row({list[i], list[i + 1], list[i + 2], list[i + 3]}, static_cast<int64_t>(list[i + 4])));
  }
  return true;
}

// A rule, the powers of a row before the step, then elements: value, gradient, both states. Out come the new powers and
// for each element its new value and states.
bool optimizer() {
  struct element {
    float w, g, first, second;
  };
  std::vector<char> bytes = input();
  wmk::rule r;
  wmk::row_powers powers;
  const size_t head = sizeof(r) + sizeof(powers);
  if (bytes.size() < head) return false;
  memcpy(&r, bytes.data(), sizeof(r));
  memcpy(&powers, bytes.data() + sizeof(r), sizeof(powers));
  powers = wmk::next_powers(r, powers);
  put(powers);
  for (element e : values<element>({bytes.begin() + head, bytes.end()})) {
    switch (r.optimizer) {
      case wmk::optimizer_sgd:
        e.w = wmk::sgd(r, e.w, e.g);
        break;
      case wmk::optimizer_lazy_adam:
        e.w = wmk::lazy_adam(r, powers, e.w, e.g, e.first, e.second);
        break;
      case wmk::optimizer_rms_prop:
        e.w = wmk::rms_prop(r, e.w, e.g, e.first);
        break;
      case wmk::optimizer_ada_grad:
        e.w = wmk::ada_grad(r, e.w, e.g, e.first);
        break;
      default:
        return false;
    }
    put(e.w);
    put(e.first);
    put(e.second);
  }
  return true;
}

// Input: a row, sets, words, a word of the sketch, a count.
bool caches() {
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 4 < in.size(); i += 5) {
    const uint64_t hash = wmk::cache_hash(in[i]);
    put(hash);
    put(wmk::cache_set_of(in[i], hash, in[i + 1], false));
    put(wmk::cache_set_of(in[i], hash, in[i + 1], true));
    put(wmk::sketch_word(hash, in[i + 2]));
    put(static_cast<uint64_t>(wmk::sketch_estimate(in[i + 3], hash)));
    put(wmk::sketch_counted(in[i + 3], hash));
    put(wmk::sketch_raised(in[i + 3], hash, static_cast<uint32_t>(in[i + 4])));
    put(wmk::counts_halved(in[i + 3]));
  }
  return true;
}

static_assert(sizeof(wmk::cache_head) == 128 && sizeof(wmk::cache_set) == 64, "the library counts on these");

}  // namespace

int main(int argc, char **argv) {
  std::string what = argc > 1 ? argv[1] : "";
  auto number = [&](int i) { return static_cast<uint32_t>(argc > i ? std::stoul(argv[i]) : 0); };
  bool done = false;
  if (what == "convert") done = convert(number(2), number(3));
  if (what == "addresses") done = addresses();
  if (what == "draws") done = draws();
  if (what == "keys") done = keys();
  if (what == "layouts") done = layouts();
  if (what == "shapes") done = shapes();
  if (what == "seats") done = seats();
  if (what == "splits") done = splits();
  if (what == "accesses") done = accesses();
  if (what == "caches") done = caches();
  if (what == "dealt") done = dealt();
  if (what == "optimizer") done = optimizer();
  return done && fflush(stdout) == 0 ? 0 : 1;
}
