// The gradient step against the rule, on the host: gradients of a row summed in runs of 512, left to right, in float; the
// formulas of the optimizers in float, every operation rounded, which must agree in every bit, and in double, within a
// bound. All bytes of table and states are compared, so what must not be touched is checked too.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "../args_learning.h"
#include "../common/optimizer.h"
#include "check.h"

namespace {

float read_float(uint32_t dtype, const uint8_t *at) {
  if (dtype == dtype_float) {
    float x;
    memcpy(&x, at, 4);
    return x;
  }
  if (dtype == dtype_half) {
    _Float16 x;
    memcpy(&x, at, 2);
    return static_cast<float>(x);
  }
  uint16_t bits;
  memcpy(&bits, at, 2);
  const uint32_t wide = uint32_t{bits} << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

void write_float(uint32_t dtype, uint8_t *at, float value) {
  if (dtype == dtype_float) {
    memcpy(at, &value, 4);
  } else if (dtype == dtype_half) {
    const _Float16 x = static_cast<_Float16>(value);
    memcpy(at, &x, 2);
  } else {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t x = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(at, &x, 2);
  }
}

// How ids are spread over the rows.
enum Spread { kUniform, kOneRow, kHalfOneRow, kFewRows, kSkewed, kNowhere, kSpreads };
const char *spread_names[] = {"uniform", "one row", "half of them one row", "few rows", "skewed", "nowhere"};

struct Case {
  uint32_t optimizer, adam_w, table_dtype, gradient_dtype;
  int id_bytes;
  Spread spread;
  int64_t rows, count;
  int cols;
  uint64_t row_elements, gradient_elements, gradient_first;  // strides, and where the first gradient begins
  uint64_t first_row, rows_said;
  bool listed;
  uint32_t home_blocks;  // where listed: 0, or every third row is in the table
  uint32_t blocks;

  std::string text() const {
    char words[400];
    snprintf(words, sizeof words,
             "optimizer %u%s on %s by %s, ids of %d bytes, %s, rows %lld from %llu of %llu, count %lld, cols %d, strides "
             "%llu and %llu, gradients from %llu, listed %d (%u), blocks %u",
             optimizer, adam_w ? " (w)" : "", dtype_name(table_dtype), dtype_name(gradient_dtype), id_bytes,
             spread_names[spread], static_cast<long long>(rows), static_cast<unsigned long long>(first_row),
             static_cast<unsigned long long>(rows_said), static_cast<long long>(count), cols,
             static_cast<unsigned long long>(row_elements), static_cast<unsigned long long>(gradient_elements),
             static_cast<unsigned long long>(gradient_first), listed, home_blocks, blocks);
    return words;
  }
};

std::vector<int64_t> make_ids(Random &random, const Case &c) {
  std::vector<int64_t> ids(c.count);
  const int64_t favourite = random.below(c.rows);
  for (auto &id : ids) {
    int64_t row = random.below(c.rows);
    if (c.spread == kOneRow || (c.spread == kHalfOneRow && random.below(2))) row = favourite;
    if (c.spread == kFewRows) row = random.below(std::min<int64_t>(c.rows, 7)) * (c.rows / std::min<int64_t>(c.rows, 7));
    if (c.spread == kSkewed) row = static_cast<int64_t>(c.rows * std::pow(random.below(1 << 20) / double(1 << 20), 8));
    id = c.first_row + row;
    // Rows of others, and none.
    const bool stray = c.spread == kNowhere || random.below(20) == 0;
    if (stray && c.first_row > 0 && random.below(2)) {
      id = random.below(c.first_row);
    } else if (stray && (random.below(2) || c.rows_said != static_cast<uint64_t>(c.rows))) {
      id = -1 - static_cast<int64_t>(random.below(1 << 20));
    } else if (stray) {
      id = c.first_row + c.rows + random.below(1000);
    }
  }
  return ids;
}

struct Parameters {
  float learning_rate, weight_decay, epsilon, beta1, beta2, alpha;
};

// The rule, in float: g is the sum; state and powers of the row are the old ones, and become the new ones.
float update_in_float(const Case &c, const Parameters &p, float b1t, float b2t, float w, float g, float *first,
                      float *second) {
  // Products are kept apart from sums by volatile, whatever the compiler may fuse.
  volatile float t, u;
  const auto decayed = [&] {
    t = p.weight_decay * w;
    return g + t;
  };
  if (c.optimizer == optimizer_sgd) {
    t = p.learning_rate * decayed();
    return w - t;
  }
  if (c.optimizer == optimizer_lazy_adam) {
    if (c.adam_w) {
      t = p.learning_rate * p.weight_decay;
      u = t * w;
      w = w - u;
    } else {
      g = decayed();
    }
    t = p.beta1 * *first;
    u = (1.0f - p.beta1) * g;
    *first = t + u;
    t = (1.0f - p.beta2) * g;
    u = t * g;
    t = p.beta2 * *second;
    *second = t + u;
    const float rate = p.learning_rate / (1.0f - b1t), unbiased = 1.0f / (1.0f - b2t);
    t = *second * unbiased;
    const float root = sqrtf(t);
    t = rate * *first;
    u = t / (root + p.epsilon);
    return w - u;
  }
  g = decayed();
  if (c.optimizer == optimizer_rms_prop) {
    t = (1.0f - p.alpha) * g;
    u = t * g;
    t = p.alpha * *first;
    *first = t + u;
  } else {
    t = g * g;
    *first = *first + t;
  }
  t = p.learning_rate * g;
  u = t / (sqrtf(*first) + p.epsilon);
  return w - u;
}

double update_in_double(const Case &c, const Parameters &p, double b1t, double b2t, double w, double g, double first,
                        double second) {
  const double lr = p.learning_rate, wd = p.weight_decay, eps = p.epsilon;
  const double old = w;
  if (c.optimizer != optimizer_lazy_adam || !c.adam_w) g += wd * w;
  if (c.optimizer == optimizer_sgd) return w - lr * g;
  if (c.optimizer == optimizer_lazy_adam) {
    if (c.adam_w) w -= lr * wd * old;
    const double beta1 = p.beta1, beta2 = p.beta2;
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * g * g;
    return w - lr * (first / (1 - b1t)) / (std::sqrt(second / (1 - b2t)) + eps);
  }
  const double alpha = p.alpha;
  first = c.optimizer == optimizer_rms_prop ? alpha * first + (1 - alpha) * g * g : first + g * g;
  return w - lr * g / (std::sqrt(first) + eps);
}

// Of gradients in their order: the sum by runs.
float sum_by_runs(const std::vector<float> &gradients) {
  float all = 0;
  for (size_t begin = 0; begin < gradients.size(); begin += 512) {
    float run = gradients[begin];
    for (size_t i = begin + 1; i < std::min(begin + 512, gradients.size()); i++) run += gradients[i];
    all = begin == 0 ? run : all + run;
  }
  return all;
}

// Asks how much scratch is needed and calls again with it.
template <class Args>
void call(int (*op)(const Args *, wmk_stream), Args &args, Device *&scratch) {
  uint64_t needed = 0;
  args.scratch = 0;
  args.needed_bytes = &needed;
  CUDA(op(&args, nullptr));
  scratch = new Device(needed);
  scratch->poison();
  args.scratch = scratch->address();
  args.scratch_bytes = needed;
  CUDA(op(&args, nullptr));
}

template <class T>
std::vector<uint8_t> bytes_of(const std::vector<T> &values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Positions in lots of random sizes with gaps between them: of every id one.
std::vector<uint32_t> deal_positions(Random &random, int64_t count, wmk_group_args &args) {
  std::vector<uint32_t> positions(count);
  args.lots = random.below(3) ? 0 : 1 + random.below(std::min<int64_t>(count, WMK_GROUP_LOTS));
  std::set<uint32_t> firsts{0};
  while (firsts.size() < args.lots) firsts.insert(random.below(count));
  uint32_t next = 0, k = 0;
  for (int64_t i = 0; i < count; i++) {
    if (args.lots > 0 && firsts.count(i)) {
      next += random.below(5);
      args.lot_firsts[k] = i;
      args.lot_positions[k++] = next;
    }
    positions[i] = next++;
  }
  return positions;
}

bool step_case(Random &random, const Case &c) {
  const auto uniform = [&] { return static_cast<float>(random.below(1 << 24)) / (1 << 23) - 1; };
  const size_t elt = dtype_bytes(c.table_dtype), gradient_elt = dtype_bytes(c.gradient_dtype);
  const int states = c.optimizer == optimizer_sgd ? 0 : c.optimizer == optimizer_lazy_adam ? 2 : 1;
  const auto ids = make_ids(random, c);

  // What is there before.
  std::vector<uint8_t> table(c.rows * c.row_elements * elt, 0x5a);
  std::vector<float> state(c.rows * std::max(states, 1) * c.row_elements), powers(c.rows * 2, 1.0f);
  for (auto &x : state) x = std::fabs(uniform());
  for (auto &x : powers) x = random.below(2) ? 1.0f : 0.01f + std::fabs(uniform()) * 0.9f;
  for (int64_t r = 0; r < c.rows; r++) {
    for (int e = 0; e < c.cols; e++) write_float(c.table_dtype, &table[(r * c.row_elements + e) * elt], uniform());
  }
  wmk_group_args group{};
  const auto dealt = deal_positions(random, c.count, group);
  std::vector<uint8_t> gradients((c.gradient_first + (dealt.back() + 1) * c.gradient_elements) * gradient_elt, 0x5a);
  const auto gradient_at = [&](int64_t i, int e) {
    return &gradients[(c.gradient_first + dealt[i] * c.gradient_elements + e) * gradient_elt];
  };
  for (int64_t i = 0; i < c.count; i++) {
    // Of several magnitudes, so that the order of a sum shows.
    for (int e = 0; e < c.cols; e++) {
      write_float(c.gradient_dtype, gradient_at(i, e), std::ldexp(uniform(), -static_cast<int>(random.below(8))));
    }
  }
  Parameters p = {0.01f, random.below(2) ? 0.0f : 0.02f, 1e-8f, 0.9f, 0.999f, 0.99f};
  // A step of minus the sum itself.
  const bool bare = c.optimizer == optimizer_sgd && random.below(2);
  if (bare) {
    p.learning_rate = 1;
    p.weight_decay = 0;
    for (int64_t r = 0; r < c.rows; r++) {
      for (int e = 0; e < c.cols; e++) write_float(c.table_dtype, &table[(r * c.row_elements + e) * elt], 0);
    }
  }

  // What the rule makes of it.
  std::map<int64_t, std::vector<int64_t>> of_row;
  for (int64_t i = 0; i < c.count; i++) {
    const int64_t row = ids[i] - static_cast<int64_t>(c.first_row);
    if (ids[i] >= 0 && row >= 0 && row < c.rows) of_row[row].push_back(i);
  }
  auto wanted = table;
  auto wanted_state = state, wanted_powers = powers;
  double worst = 0;
  for (const auto &[row, positions] : of_row) {
    float *power = &wanted_powers[row * 2];
    if (states == 2) {
      power[0] *= p.beta1;
      power[1] *= p.beta2;
    }
    for (int e = 0; e < c.cols; e++) {
      std::vector<float> parts;
      for (int64_t i : positions) parts.push_back(read_float(c.gradient_dtype, gradient_at(i, e)));
      const float sum = sum_by_runs(parts);
      uint8_t *at = &wanted[(row * c.row_elements + e) * elt];
      const float w = read_float(c.table_dtype, at);
      float *first = &wanted_state[(row * std::max(states, 1)) * c.row_elements + e];
      float *second = states == 2 ? first + c.row_elements : first;
      const double precise = update_in_double(c, p, power[0], power[1], w, sum, *first, *second);
      const float next = update_in_float(c, p, power[0], power[1], w, sum, first, second);
      // 4 units in the last place of what takes part.
      worst = std::max(worst, std::fabs(next - precise) / (std::fabs(precise) + std::fabs(w) + std::fabs(sum)) * (1 << 22));
      write_float(c.table_dtype, at, next);
    }
  }

  // What the kernels make of it.
  Device table_at(table.size()), state_at(state.size() * 4), powers_at(powers.size() * 4);
  Device gradients_at(gradients.size()), ids_at(c.count * c.id_bytes);
  table_at.put(table);
  // Of a listed case: the rows in the table itself, and those whose states come from elsewhere.
  const auto is_home = [&](uint64_t row) { return c.home_blocks > 0 && row % 3 == 0; };
  const auto states_move = [&](uint64_t row) { return states > 0 && (c.home_blocks == 0 || row % 2 == 1); };
  // States that come from elsewhere come whole, up to the 16 bytes that a row ends with.
  std::vector<float> wanted_there = wanted_state;
  if (c.listed) {
    std::vector<float> stale = state;
    const size_t state_floats = std::max(states, 1) * c.row_elements;
    for (int64_t r = 0; r < c.rows; r++) {
      if (states_move(r)) std::fill_n(stale.begin() + r * state_floats, state_floats, -7.0f);
    }
    state_at.put(stale);
    const int unit = 16 / elt;
    for (const auto &[row, positions] : of_row) {
      const int whole = states_move(row) ? (c.cols + unit - 1) / unit * unit : c.row_elements;
      for (int k = 0; k < states; k++) {
        const size_t at = (row * states + k) * c.row_elements;
        std::copy_n(wanted_state.begin() + at, whole, stale.begin() + at);
      }
    }
    wanted_there = stale;
  } else {
    state_at.put(state);
  }
  powers_at.put(powers);
  gradients_at.put(gradients);
  if (c.id_bytes == 8) {
    ids_at.put(ids);
  } else {
    ids_at.put(std::vector<int32_t>(ids.begin(), ids.end()));
  }
  group.ids = ids_at.as<void>();
  group.count = c.count;
  group.first_row = c.first_row;
  group.rows = c.rows_said;
  group.id_bytes = c.id_bytes;
  wmk_step_args step{};
  group.rows_at = &step.sorted_rows;
  group.positions_at = &step.positions;
  group.zeros_at = &step.zeros;
  Device *group_scratch = nullptr, *step_scratch = nullptr;
  call(wmk_group, group, group_scratch);
  step.count = c.count;
  step.rows = c.rows_said;
  step.gradients = gradients_at.address() + c.gradient_first * gradient_elt;
  step.gradient_stride_bytes = c.gradient_elements * gradient_elt;
  step.cols = c.cols;
  step.table = table_at.address();
  step.table_stride_bytes = c.row_elements * elt;
  step.states[0] = states > 0 ? state_at.address() : 0;
  step.states[1] = states > 1 ? state_at.address() + c.row_elements * 4 : 0;
  step.state_stride_bytes = states * c.row_elements * 4;
  step.beta_powers = powers_at.address();
  step.rule = {c.optimizer, c.adam_w, p.learning_rate, p.weight_decay, p.epsilon, p.beta1, p.beta2, p.alpha};
  step.gradient_dtype = c.gradient_dtype;
  step.table_dtype = c.table_dtype;
  step.blocks = c.blocks;

  // The rows somewhere else: row r where row rows - 1 - r is in a second table, states that move read there.
  Device other_table(table.size()), other_state(state.size() * 4), places(c.count * 8), sources(c.count * 8),
      targets(c.count * 8), home_heads(c.count * 4), home_count(4);
  if (c.listed) {
    std::vector<uint8_t> turned(table.size());
    std::vector<float> turned_state(state.size());
    const size_t row_bytes = c.row_elements * elt, state_floats = std::max(states, 1) * c.row_elements;
    for (int64_t r = 0; r < c.rows; r++) {
      memcpy(&turned[(c.rows - 1 - r) * row_bytes], &table[r * row_bytes], row_bytes);
      memcpy(&turned_state[(c.rows - 1 - r) * state_floats], &state[r * state_floats], state_floats * 4);
    }
    other_table.put(turned);
    other_state.put(turned_state);
    CUDA(cudaDeviceSynchronize());
    std::vector<uint64_t> sorted(c.count);
    std::vector<uint32_t> narrow(c.count);
    if (c.rows_said > UINT32_MAX) {
      CUDA(cudaMemcpy(sorted.data(), reinterpret_cast<void *>(step.sorted_rows), c.count * 8, cudaMemcpyDeviceToHost));
    } else {
      CUDA(cudaMemcpy(narrow.data(), reinterpret_cast<void *>(step.sorted_rows), c.count * 4, cudaMemcpyDeviceToHost));
      sorted.assign(narrow.begin(), narrow.end());
    }
    std::vector<uint32_t> heads;
    std::vector<uint64_t> row_places(c.count), state_sources(c.count), state_targets(c.count);
    for (int64_t i = 0; i < c.count; i++) {
      if (sorted[i] >= c.rows_said || (i > 0 && sorted[i] == sorted[i - 1])) continue;
      row_places[i] = other_table.address() + (c.rows - 1 - sorted[i]) * row_bytes;
      if (is_home(sorted[i])) row_places[i] = table_at.address() + sorted[i] * row_bytes;
      if (is_home(sorted[i])) heads.insert(heads.begin() + random.below(heads.size() + 1), i);
      state_sources[i] = state_targets[i] = state_at.address() + sorted[i] * state_floats * 4;
      if (states_move(sorted[i])) {
        state_sources[i] = other_state.address() + (c.rows - 1 - sorted[i]) * state_floats * 4;
      }
    }
    places.put(row_places);
    sources.put(state_sources);
    targets.put(state_targets);
    step.row_places = places.as<uint64_t>();
    step.state_sources = sources.as<uint64_t>();
    step.state_targets = targets.as<uint64_t>();
    home_count.put(std::vector<uint32_t>{static_cast<uint32_t>(heads.size())});
    if (!heads.empty()) home_heads.put(heads);
    step.home_heads = c.home_blocks > 0 ? home_heads.as<uint32_t>() : nullptr;
    step.home_count = home_count.as<uint32_t>();
    step.home_blocks = c.home_blocks;
  }
  call(wmk_step, step, step_scratch);
  CUDA(cudaDeviceSynchronize());
  delete group_scratch;
  delete step_scratch;

  auto got = table_at.get<uint8_t>(table.size());
  bool right = true;
  if (c.listed) {
    // Where a row is not, what was there is as it was.
    const auto turned = other_table.get<uint8_t>(table.size());
    const size_t row_bytes = c.row_elements * elt;
    for (int64_t r = 0; r < c.rows; r++) {
      const uint8_t *other = &turned[(c.rows - 1 - r) * row_bytes];
      right = right && memcmp(is_home(r) ? other : &got[r * row_bytes], &table[r * row_bytes], row_bytes) == 0;
      if (!is_home(r)) memcpy(&got[r * row_bytes], other, row_bytes);
    }
  }
  const bool rows_right = got == wanted;
  const bool states_right = states == 0 || bytes_of(state_at.get<float>(state.size())) == bytes_of(wanted_there);
  const bool powers_right = bytes_of(powers_at.get<float>(powers.size())) == bytes_of(wanted_powers);
  const bool close = worst <= 4;
  right = right && rows_right && states_right && powers_right && close;
  if (!right) {
    fprintf(stderr, "WRONG step: rows %d, states %d, powers %d, off by %.1f: %s\n", rows_right, states_right,
            powers_right, worst, c.text().c_str());
    for (size_t i = 0; i < got.size() && !rows_right; i++) {
      if (got[i] == wanted[i]) continue;
      const int64_t row = i / (c.row_elements * elt);
      fprintf(stderr, "  row %lld, byte %zu, %zu gradients\n", static_cast<long long>(row), i % (c.row_elements * elt),
              of_row.count(row) ? of_row[row].size() : 0);
      break;
    }
  }
  return right;
}

// Every position once, equal rows together and in the order of their positions, what is no row at the end, and zeros.
bool group_case(Random &random, Spread spread, int64_t rows, int64_t count, int id_bytes, bool ascends) {
  Case c{};
  c.spread = spread;
  c.rows = c.rows_said = rows;
  c.count = count;
  c.first_row = random.below(2) ? 0 : random.below(100000);
  const auto ids = make_ids(random, c);
  Device ids_at(count * id_bytes);
  if (id_bytes == 8) {
    ids_at.put(ids);
  } else {
    ids_at.put(std::vector<int32_t>(ids.begin(), ids.end()));
  }
  uint64_t rows_at = 0, positions_at = 0, zeros_at = 0;
  wmk_group_args args{};
  args.ids = ids_at.as<void>();
  args.count = count;
  args.first_row = c.first_row;
  args.rows = rows;
  args.id_bytes = id_bytes;
  args.ascends = ascends;
  args.rows_at = &rows_at;
  args.positions_at = &positions_at;
  args.zeros_at = &zeros_at;
  args.spare = random.below(2) * random.below(9000);
  const auto dealt = deal_positions(random, count, args);
  Device *scratch = nullptr;
  call(wmk_group, args, scratch);
  CUDA(cudaDeviceSynchronize());
  const auto read = [&](uint64_t at, size_t words) {
    std::vector<uint32_t> got(words, 0xffffffff);
    if (at >= scratch->address() && at + words * 4 <= scratch->address() + scratch->bytes()) {
      CUDA(cudaMemcpy(got.data(), reinterpret_cast<void *>(at), words * 4, cudaMemcpyDeviceToHost));
    }
    return got;
  };
  const auto got = read(rows_at, count);
  auto positions = read(positions_at, count);
  const auto zeros = read(zeros_at, count / WMK_GROUP_WINDOW + 1 + args.spare);
  for (uint32_t &position : positions) {
    const auto id = std::lower_bound(dealt.begin(), dealt.end(), position);
    position = id != dealt.end() && *id == position ? id - dealt.begin() : 0xffffffff;
  }
  delete scratch;
  bool right = std::all_of(zeros.begin(), zeros.end(), [](uint32_t zero) { return zero == 0; });
  std::vector<bool> seen(count);
  std::map<uint32_t, int> begun;
  for (int64_t i = 0; right && i < count; i++) {
    const uint32_t position = positions[i];
    right = position < count && !seen[position];
    if (!right) break;
    seen[position] = true;
    const int64_t row = ids[position] - static_cast<int64_t>(c.first_row);
    const bool named = ids[position] >= 0 && row >= 0 && row < rows;
    right = got[i] == (named ? row : rows);
    if (i > 0 && got[i] == got[i - 1]) {
      right = right && positions[i - 1] < position;
    } else {
      right = right && begun[got[i]]++ == 0;
    }
    if (i > 0) right = right && got[i - 1] <= (ascends ? got[i] : rows) && !(got[i - 1] == rows && got[i] != rows);
  }
  if (!right) {
    fprintf(stderr, "WRONG group: %lld ids of %d bytes over %lld rows, %s, ascends %d\n", static_cast<long long>(count),
            id_bytes, static_cast<long long>(rows), spread_names[spread], ascends);
  }
  return right;
}

}  // namespace

void check_learning(Tally &tally, int rounds, Size size) {
  const bool few = size == Size::few;
  Random random{2024};
  const auto run = [&](uint32_t optimizer, uint32_t table, uint32_t gradient, Spread spread, int64_t rows, int64_t count,
                       int cols) {
    Case c{};
    c.optimizer = optimizer;
    c.adam_w = random.below(2);
    c.table_dtype = table;
    c.gradient_dtype = gradient;
    c.id_bytes = random.below(2) ? 8 : 4;
    c.spread = spread;
    c.rows = rows;
    c.count = count;
    c.cols = cols;
    const uint64_t unit = 16 / dtype_bytes(table);
    c.row_elements = ((cols + unit - 1) / unit + random.below(2)) * unit;
    c.gradient_elements = cols + (random.below(2) ? 0 : random.below(9));
    if (random.below(3) == 0) c.gradient_elements = (cols + 7) / 8 * 8;
    c.gradient_first = random.below(2) ? 0 : random.below(8);
    // Few: what can be aligned is, so that every kernel has its turn.
    if (few && cols % 8 == 0) {
      c.gradient_elements = cols;
      c.gradient_first = 0;
    }
    c.first_row = random.below(2) ? 0 : random.below(100000);
    // More rows than 32 bits number, of which only the first are named.
    c.rows_said = c.id_bytes == 8 && random.below(6) == 0 ? uint64_t{1} << 33 : rows;
    if (c.id_bytes == 8 && c.rows_said == static_cast<uint64_t>(rows) && random.below(6) == 0) {
      c.first_row = uint64_t{1} << 40;
    }
    c.listed = random.below(4) == 0;
    c.home_blocks = c.listed && random.below(2) ? 1 + random.below(5) : 0;
    c.blocks = random.one_of<uint32_t>({1, 7, 132, UINT32_MAX, UINT32_MAX, UINT32_MAX});
    tally.count(step_case(random, c));
  };
  const auto dtype = [&] { return random.one_of<uint32_t>({dtype_float, dtype_half, dtype_bf16}); };
  const auto optimizer = [&] {
    return random.one_of<uint32_t>({optimizer_sgd, optimizer_lazy_adam, optimizer_rms_prop, optimizer_ada_grad});
  };
  for (uint32_t how : {optimizer_sgd, optimizer_lazy_adam, optimizer_rms_prop, optimizer_ada_grad}) {
    for (uint32_t table : {dtype_float, dtype_half, dtype_bf16}) {
      for (uint32_t gradient : {dtype_float, dtype_half, dtype_bf16}) {
        // Few: one of the two narrow types, for tables and gradients another one with the next optimizer.
        if (few && (table == (how % 2 ? dtype_half : dtype_bf16))) continue;
        if (few && (gradient == (how % 2 ? dtype_bf16 : dtype_half))) continue;
        run(how, table, gradient, kSkewed, few ? 50 : 500, few ? 300 : 3000, 33);
        run(how, table, gradient, kHalfOneRow, few ? 10 : 100, few ? 300 : 5000, 128);
      }
    }
  }
  // Around the ends of windows and runs.
  for (int64_t count : {1, 2, 31, 32, 63, 64, 65, 127, 128, 129, 130, 511, 512, 513, 640, 1023, 1024, 1025, 5000}) {
    for (Spread spread : {kOneRow, kHalfOneRow, kFewRows, kUniform}) {
      if (few && (spread == kHalfOneRow || spread == kUniform)) continue;
      if (few && count != 1 && count != 64 && count != 65 && count != 1025) continue;
      run(optimizer(), dtype(), dtype(), spread, 50, count, 5);
      run(optimizer_sgd, dtype_float, dtype_float, spread, 9, count, 4);
    }
  }
  for (int round = 0; few && round < rounds; round++) {
    for (int cols : {1, 4, 17, 128, 300, 1030}) {
      run(optimizer(), dtype(), dtype(), static_cast<Spread>(random.below(kSpreads)), 100, 300, cols);
    }
  }
  for (int round = 0; !few && round < rounds; round++) {
    for (int cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65, 100, 127, 128, 129, 200, 256, 300, 1000, 1030}) {
      const Spread spread = static_cast<Spread>(random.below(kSpreads));
      const int64_t count = random.one_of<int64_t>({1, 50, 700, 2000, cols > 300 ? 3000 : 20000});
      run(optimizer(), dtype(), dtype(), spread, 1 + random.below(2000), count, cols);
    }
  }
  // A row with a hundred thousand gradients, among others.
  run(optimizer_lazy_adam, dtype_float, dtype_float, kHalfOneRow, 3000, few ? 5000 : 200000, 16);
  run(optimizer_sgd, dtype_half, dtype_bf16, kOneRow, 3000, few ? 3000 : 100000, 9);
  for (int64_t count : {1, 2, 3, 63, 64, 1000, 2047, 2048, 2049, 5000, 70000, 524288, 524289}) {
    for (int spread = 0; spread < kSpreads; spread++) {
      if (count > 100000 && spread != kUniform && spread != kHalfOneRow) continue;
      // Few: the sizes of each way to group, the spreads only where rows are spread over buckets.
      if (few && count != 1 && count != 1000 && count != 2049) continue;
      if (few && spread != kHalfOneRow && (count != 2049 || spread == kFewRows || spread == kSkewed)) continue;
      for (bool ascends : {false, true}) {
        const int64_t rows = random.one_of<int64_t>({1, 5, 1000, 100000, 8 << 20});
        tally.count(group_case(random, static_cast<Spread>(spread), rows, count, random.below(2) ? 8 : 4, ascends));
      }
    }
  }
}
