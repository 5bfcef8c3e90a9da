// Runs the formulas of kernels/common/ on numbers from stdin; kernels_common.rs compares them with those of the library.

#include "common/dtype.h"
#include "common/launch.h"
#include "common/pcg.h"
#include "common/place.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::vector<char> input()
{
  std::vector<char> bytes;
  char block[65536];
  for (size_t got; (got = fread(block, 1, sizeof(block), stdin)) > 0;) {
    bytes.insert(bytes.end(), block, block + got);
  }
  return bytes;
}

template <typename T>
std::vector<T> values(const std::vector<char>& bytes)
{
  std::vector<T> list(bytes.size() / sizeof(T));
  if (!list.empty()) memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
  return list;
}

template <typename T>
void put(const T& value)
{
  fwrite(&value, sizeof(value), 1, stdout);
}

template <typename From, typename To>
void convert_all()
{
  for (From value : values<From>(input())) {
    put(wmk::convert<To, From>::from(value));
  }
}

template <typename From>
bool convert_from(uint32_t to)
{
  switch (to) {
    case wmk::dtype_float: convert_all<From, float>(); return true;
    case wmk::dtype_half: convert_all<From, wmk::half_bits>(); return true;
    case wmk::dtype_double: convert_all<From, double>(); return true;
    case wmk::dtype_bf16: convert_all<From, wmk::bf16_bits>(); return true;
    default: return false;
  }
}

template <typename From>
bool cast_from(uint32_t to)
{
  switch (to) {
    case wmk::dtype_int: convert_all<From, int32_t>(); return true;
    case wmk::dtype_int64: convert_all<From, int64_t>(); return true;
    case wmk::dtype_int16: convert_all<From, int16_t>(); return true;
    case wmk::dtype_int8: convert_all<From, int8_t>(); return true;
    default: return false;
  }
}

bool convert(uint32_t from, uint32_t to)
{
  if (!wmk::is_dtype(from) || !wmk::is_dtype(to) || wmk::is_float(from) != wmk::is_float(to)) return false;
  switch (from) {
    case wmk::dtype_float: return convert_from<float>(to);
    case wmk::dtype_half: return convert_from<wmk::half_bits>(to);
    case wmk::dtype_double: return convert_from<double>(to);
    case wmk::dtype_bf16: return convert_from<wmk::bf16_bits>(to);
    case wmk::dtype_int: return cast_from<int32_t>(to);
    case wmk::dtype_int64: return cast_from<int64_t>(to);
    case wmk::dtype_int16: return cast_from<int16_t>(to);
    default: return cast_from<int8_t>(to);
  }
}

// Input: ranks, base, offset, stride, rows; bases; first rows (none of both without ranks); ids.
bool addresses()
{
  std::vector<uint64_t> in = values<uint64_t>(input());
  size_t ranks             = in[0];
  wmk::places table        = {};
  table.ranks              = static_cast<uint32_t>(ranks);
  table.base               = in[1];
  table.offset_bytes       = in[2];
  table.row_stride_bytes   = in[3];
  table.rows               = in[4];
  table.bases              = in.data() + 5;
  table.start_rows         = in.data() + 5 + ranks;
  size_t first             = ranks == 0 ? 5 : 5 + ranks + ranks + 1;
  for (size_t i = first; i < in.size(); i++) {
    put(wmk::row_address(table, in[i]));
  }
  return true;
}

// Input: pairs of seed and subsequence.
bool draws()
{
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
  }
  return true;
}

// Input: groups of rows, steps, rows in flight, most blocks.
bool launches()
{
  std::vector<uint64_t> in = values<uint64_t>(input());
  for (size_t i = 0; i + 3 < in.size(); i += 4) {
    wmk::row_launch wide = wmk::launch_rows(in[i], in[i + 1], static_cast<uint32_t>(in[i + 2]), static_cast<uint32_t>(in[i + 3]));
    put(static_cast<uint64_t>(wide.lanes_per_row));
    put(static_cast<uint64_t>(wide.blocks));
  }
  return true;
}

bool accesses()
{
  for (uint64_t bits : values<uint64_t>(input())) {
    put(static_cast<uint64_t>(wmk::access_bytes(bits)));
  }
  return true;
}

}  // namespace

int main(int argc, char** argv)
{
  std::string what = argc > 1 ? argv[1] : "";
  auto number      = [&](int i) { return static_cast<uint32_t>(argc > i ? std::stoul(argv[i]) : 0); };
  bool done        = false;
  if (what == "convert") done = convert(number(2), number(3));
  if (what == "addresses") done = addresses();
  if (what == "draws") done = draws();
  if (what == "launches") done = launches();
  if (what == "accesses") done = accesses();
  return done && fflush(stdout) == 0 ? 0 : 1;
}
