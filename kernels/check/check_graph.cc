// Samplers against plain sequential references on the host, written from their rules.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "check.h"
#include "graph_tables.h"

namespace {

constexpr uint64_t kMultiplier = 6364136223846793005ull;

// The generator by its definition; skipping by tables made step by step.
class Streams {
 public:
  struct Stream {
    uint64_t state, increment;
    uint32_t u32() {
      const uint64_t old = state;
      state = old * kMultiplier + increment;
      const uint32_t x = static_cast<uint32_t>(((old >> 18) ^ old) >> 27), turn = old >> 59;
      return turn == 0 ? x : x >> turn | x << (32 - turn);
    }
    uint32_t i31() { return u32() & 0x7fffffff; }
  };

  Stream of(uint64_t seed, uint64_t q) {
    while (factor_.size() <= q) {
      factor_.push_back(factor_.back() * kMultiplier);
      sum_.push_back(sum_.back() * kMultiplier + 1);
    }
    Stream s{0, 2 * q + 1};
    s.u32();
    s.state += seed;
    s.u32();
    s.state = s.state * factor_[q] + s.increment * sum_[q];
    return s;
  }

 private:
  std::vector<uint64_t> factor_{1}, sum_{0};
};
Streams streams;

std::vector<uint64_t> even_reference(uint64_t seed, uint64_t i, uint64_t n, uint32_t most) {
  std::vector<uint64_t> out(most);
  if (most > 1024) {
    std::iota(out.begin(), out.end(), 0);
    for (uint64_t t = 0; t < 32; t++) {
      auto s = streams.of(seed, i * 32 + t);
      for (uint64_t y = most + t; y < n; y += 32) {
        const uint64_t v = s.i31() % (y + 1);
        if (v < most) out[v] = std::max(out[v], y);
      }
    }
    return out;
  }
  static const uint32_t blocks[32] = {32,  32,  32,  64,  64,  64,  128, 128, 128, 128, 128, 128, 256, 256, 256, 256,
                                      256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256};
  const uint32_t threads = blocks[(most - 1) / 32];
  std::vector<uint64_t> r(most);
  for (uint32_t t = 0; t < threads; t++) {
    auto s = streams.of(seed, i * threads + t);
    for (uint32_t x = t; x < most; x += threads) r[x] = s.i31() % (n - x);
  }
  std::unordered_map<uint64_t, uint64_t> moved;
  const auto q = [&](uint64_t y) { return moved.count(y) ? moved[y] : y; };
  for (uint32_t x = 0; x < most; x++) {
    out[x] = q(r[x]);
    moved[r[x]] = q(n - x - 1);
  }
  return out;
}

// The key's magnitude of every neighbour, infinity for weights that are not above 0.
std::vector<float> weighted_keys(uint64_t seed, uint64_t i, const std::vector<double> &weights, uint32_t most) {
  const uint32_t threads = most <= 256 ? 128 : 256;
  std::vector<float> keys(weights.size());
  for (uint32_t t = 0; t < threads; t++) {
    auto s = streams.of(seed, i * threads + t);
    for (uint64_t y = t; y < weights.size(); y += threads) {
      const float a = static_cast<float>(s.u32() >> 8) * 0x1p-24f;
      float u = -static_cast<float>(0.5 + 0.5 * static_cast<double>(a));
      int zeros = 0;
      uint64_t r;
      do {
        r = s.u32();
        r |= static_cast<uint64_t>(s.u32()) << 32;
        if (r == 0) zeros += 64;
      } while (r == 0);
      zeros += __builtin_clzll(r);
      u = static_cast<float>(static_cast<double>(u) * std::exp2(-zeros));
      const float key = log1pf(u) / logf(2.0f) * (1.0f / static_cast<float>(weights[y]));
      keys[y] = weights[y] > 0 ? std::fabs(key) : INFINITY;
    }
  }
  return keys;
}

bool is_close(float a, float b) {
  if (a == b) return true;
  uint32_t x, y;
  memcpy(&x, &a, 4);
  memcpy(&y, &b, 4);
  return (x > y ? x - y : y - x) <= 8;
}

struct Case {
  int nodes, centers, places;
  bool equal, spans, wide_centers, wide_columns;
  uint32_t kind, most;
  // 0: all alike, 1: FLOAT, 2: DOUBLE; and whether they are fetched.
  int weights;
  bool fetched;
  // Degrees up to this, or near `most`.
  uint64_t degree;
  int hubs;
};

struct Graph {
  std::vector<int64_t> rows, columns;
  std::vector<double> weights;
};

Graph make_graph(Random &random, const Case &c) {
  Graph g;
  g.rows.push_back(0);
  for (int v = 0; v < c.nodes; v++) {
    uint64_t degree = random.below(c.degree + 1);
    if (c.kind != WMK_TAKE_ALL && random.below(3) == 0) degree = c.most + random.below(4);
    if (random.below(8) == 0) degree = 0;
    if (v < c.hubs) degree = c.degree * 20 + random.below(1000);
    g.rows.push_back(g.rows.back() + degree);
  }
  g.columns.resize(g.rows.back());
  for (auto &column : g.columns) {
    column = c.wide_columns ? static_cast<int64_t>(random.next() >> 1) : static_cast<int64_t>(random.below(1u << 31));
  }
  g.weights.resize(g.rows.back());
  for (auto &w : g.weights) {
    const uint64_t kind = random.below(40);
    w = kind == 0 ? 0 : kind == 1 ? -1.5 : static_cast<double>(static_cast<float>(0.01 + random.below(1000) * 0.01));
    if (kind == 2) w = 1;
  }
  // Centers with too few positive weights.
  for (int v = 0; v < c.nodes; v += 7) {
    for (int64_t e = g.rows[v]; e < g.rows[v + 1]; e++) {
      if (random.below(10) != 0) g.weights[e] = random.below(2) ? 0 : -3;
    }
  }
  return g;
}

uint64_t taken_of(const Case &c, uint64_t degree) {
  if (c.kind == WMK_TAKE_AT_MOST) return std::min<uint64_t>(degree, c.most);
  if (c.kind == WMK_TAKE_ALL_ABOVE) return degree > c.most ? degree : 0;
  return degree;
}

template <class T>
std::vector<T> narrowed(const std::vector<int64_t> &from) {
  return std::vector<T>(from.begin(), from.end());
}

// What a weighted choice must be like: exact but for keys that differ by the last bits of a logarithm.
bool is_weighted_choice(const std::vector<uint64_t> &got, const std::vector<float> &keys,
                        const std::vector<double> &weights, int64_t &inexact) {
  std::vector<uint64_t> wanted(keys.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  const auto before = [&](uint64_t a, uint64_t b) {
    const bool x = weights[a] > 0, y = weights[b] > 0;
    if (x != y) return x;
    return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
  };
  std::sort(wanted.begin(), wanted.end(), before);
  std::set<uint64_t> distinct(got.begin(), got.end());
  if (distinct.size() != got.size()) return false;
  for (size_t x = 0; x < got.size(); x++) {
    if (got[x] == wanted[x]) continue;
    inexact++;
    if (got[x] >= keys.size() || !(weights[got[x]] > 0) || !is_close(keys[got[x]], keys[wanted[x]])) return false;
  }
  return true;
}

bool sample_case(Random &random, const Case &c, int64_t &inexact) {
  const Graph g = make_graph(random, c);
  const uint64_t edges = g.columns.size();
  std::vector<int64_t> centers(c.centers), spans;
  for (auto &v : centers) v = random.below(c.nodes);
  for (int k = 0; k < c.hubs && k < c.centers; k++) centers[k * 5 % c.centers] = k;
  for (int64_t v : centers) {
    spans.push_back(g.rows[v]);
    spans.push_back(g.rows[v + 1]);
  }
  const SpreadTable rows(g.rows, starts_of(g.rows.size(), c.places, c.equal, random));
  const auto column_starts = starts_of(edges, c.places, c.equal, random);
  const std::unique_ptr<SpreadTable> columns(c.wide_columns
                                                 ? new SpreadTable(g.columns, column_starts)
                                                 : new SpreadTable(narrowed<int32_t>(g.columns), column_starts));
  const std::unique_ptr<SpreadTable> weights(
      c.weights == 2 ? new SpreadTable(g.weights, column_starts)
                     : new SpreadTable(std::vector<float>(g.weights.begin(), g.weights.end()), column_starts));
  Device center_ids(c.centers * 8), span_pairs(c.centers * 16), offsets((c.centers + 1) * 4);
  c.wide_centers ? center_ids.put(centers) : center_ids.put(narrowed<int32_t>(centers));
  span_pairs.put(spans);
  offsets.poison();

  wmk_sample_offsets_args count{};
  count.neighbours.row_pointers = rows.args();
  count.neighbours.centers = center_ids.as<void>();
  count.neighbours.spans = c.spans ? span_pairs.as<int64_t>() : nullptr;
  count.neighbours.count = c.centers;
  count.neighbours.center_bytes = c.wide_centers ? 8 : 4;
  count.edges = edges;
  count.take = {c.kind, c.most};
  count.offsets = offsets.as<int32_t>();
  Shared<wmk_counted> counted(1);
  count.counted = counted.get();
  uint64_t needed = 0;
  count.needed_bytes = &needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  Device scratch(needed);
  scratch.poison();
  count.scratch = scratch.address();
  count.scratch_bytes = needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  CUDA(cudaDeviceSynchronize());
  std::vector<int32_t> wanted_offsets{0};
  for (int64_t v : centers) {
    wanted_offsets.push_back(wanted_offsets.back() + taken_of(c, g.rows[v + 1] - g.rows[v]));
  }
  const uint64_t total = wanted_offsets.back();
  bool right = counted[0].total == total && counted[0].bad_position == UINT64_MAX &&
               offsets.get<int32_t>(c.centers + 1) == wanted_offsets;
  if (!right) {
    fprintf(stderr, "WRONG offsets: %llu for %llu, bad %lld\n", (unsigned long long)counted[0].total,
            (unsigned long long)total, (long long)counted[0].bad_position);
    return false;
  }

  // What is fetched, in the order of offsets that only count centers with a choice.
  std::vector<double> fetched;
  std::vector<int32_t> fetched_offsets{0};
  for (int64_t v : centers) {
    if (c.fetched && static_cast<uint64_t>(g.rows[v + 1] - g.rows[v]) > c.most) {
      fetched.insert(fetched.end(), g.weights.begin() + g.rows[v], g.weights.begin() + g.rows[v + 1]);
    }
    fetched_offsets.push_back(fetched.size());
  }
  Device fetched_values(fetched.size() * 8), fetched_at(fetched_offsets.size() * 4);
  if (c.weights == 2) {
    fetched_values.put(fetched);
  } else {
    fetched_values.put(std::vector<float>(fetched.begin(), fetched.end()));
  }
  fetched_at.put(fetched_offsets);

  const uint64_t seed = random.next();
  const bool wants_dest = random.below(8) != 0, wants_positions = random.below(4) != 0,
             wants_edges = random.below(4) != 0 || !wants_dest;
  Device dest(total * 8), positions(total * 4), edge_ids(total * 8), offsets_out((c.centers + 1) * 4);
  for (Device *d : {&dest, &positions, &edge_ids, &offsets_out}) d->poison();
  wmk_sample_args args{};
  args.neighbours = count.neighbours;
  args.columns = columns->args();
  if (c.weights != 0 && !c.fetched) args.weights = weights->args();
  if (c.fetched) {
    args.fetched_weights = fetched_values.as<void>();
    args.fetched_offsets = fetched_at.as<int32_t>();
  }
  args.seed = seed;
  args.take = count.take;
  args.offsets = offsets.as<int32_t>();
  args.total = total;
  args.offsets_out = random.below(3) != 0 ? offsets_out.as<int32_t>() : nullptr;
  args.dest = wants_dest ? dest.as<void>() : nullptr;
  args.positions = wants_positions ? positions.as<int32_t>() : nullptr;
  args.edges = wants_edges ? edge_ids.as<int64_t>() : nullptr;
  args.column_bytes = c.wide_columns ? 8 : 4;
  args.weight_dtype = std::array<uint32_t, 3>{0, dtype_float, dtype_double}[c.weights];
  args.needed_bytes = &needed;
  CUDA(wmk_sample(&args, nullptr));
  Device room(needed);
  room.poison();
  args.scratch = room.address();
  args.scratch_bytes = needed;
  args.needed_bytes = nullptr;
  CUDA(wmk_sample(&args, nullptr));
  CUDA(cudaDeviceSynchronize());

  const auto got_edges = edge_ids.get<int64_t>(total);
  const auto got_positions = positions.get<int32_t>(total);
  std::vector<int64_t> got_dest;
  if (c.wide_columns) {
    got_dest = dest.get<int64_t>(total);
  } else {
    for (int32_t x : dest.get<int32_t>(total)) got_dest.push_back(x);
  }
  if (args.offsets_out != nullptr) right = offsets_out.get<int32_t>(c.centers + 1) == wanted_offsets;
  int wrong_center = -1;
  for (int i = 0; i < c.centers; i++) {
    const int64_t start = g.rows[centers[i]];
    const uint64_t n = g.rows[centers[i] + 1] - start, at = wanted_offsets[i], s = wanted_offsets[i + 1] - at;
    bool fine = true;
    std::vector<uint64_t> wanted(s);
    std::iota(wanted.begin(), wanted.end(), 0);
    const bool chooses = c.kind == WMK_TAKE_AT_MOST && n > c.most;
    if (chooses && c.weights == 0) wanted = even_reference(seed, i, n, c.most);
    if (chooses && c.weights != 0 && wants_edges) {
      std::vector<uint64_t> got(s);
      for (uint64_t x = 0; x < s; x++) got[x] = got_edges[at + x] - start;
      const std::vector<double> w(g.weights.begin() + start, g.weights.begin() + start + n);
      fine = is_weighted_choice(got, weighted_keys(seed, i, w, c.most), w, inexact);
      wanted = got;
    }
    for (uint64_t x = 0; x < s && fine; x++) {
      const int64_t edge = start + static_cast<int64_t>(wanted[x]);
      if (wants_edges) fine = fine && got_edges[at + x] == edge;
      if (wants_positions) fine = fine && got_positions[at + x] == i;
      if (wants_dest && (c.weights == 0 || !chooses || wants_edges)) {
        fine = fine && edge >= 0 && edge < static_cast<int64_t>(edges) && got_dest[at + x] == g.columns[edge];
      }
    }
    if (!fine && wrong_center < 0) wrong_center = i;
  }
  if (right && wrong_center < 0) return true;
  fprintf(
      stderr,
      "WRONG sample: kind %u most %u, %d centers, %d places, equal %d, spans %d, wide %d %d, weights %d, fetched %d, "
      "degree %llu, center %d of degree %lld, total %llu, wants %d %d %d\n",
      c.kind, c.most, c.centers, c.places, c.equal, c.spans, c.wide_centers, c.wide_columns, c.weights, c.fetched,
      (unsigned long long)c.degree, wrong_center,
      wrong_center < 0 ? -1ll : (long long)(g.rows[centers[wrong_center] + 1] - g.rows[centers[wrong_center]]),
      (unsigned long long)total, wants_dest, wants_positions, wants_edges);
  return false;
}

// Graphs that make no sense: told, and never followed.
bool hostile_case(Random &random, int centers, bool spans, bool wide) {
  const int nodes = 5000;
  const uint64_t edges = 100000;
  std::vector<int64_t> rows(nodes + 1);
  for (auto &r : rows) r = random.below(edges + 1);
  std::sort(rows.begin(), rows.end());
  std::vector<int64_t> ids(centers);
  for (auto &v : ids) v = random.below(nodes);
  std::vector<int64_t> pairs;
  const int bad = random.below(4) == 0 ? -1 : static_cast<int>(random.below(centers));
  int first_bad = -1;
  wmk_counted wanted{0, UINT64_MAX, -1, -1};
  for (int i = 0; i < centers; i++) {
    const bool spoil = bad >= 0 && i >= bad && (i == bad || random.below(50) == 0);
    if (spoil && !spans) ids[i] = random.one_of<int64_t>({-1, nodes, wide ? INT64_MIN : INT32_MIN, INT32_MAX});
    int64_t start = -1, end = -1;
    if (ids[i] >= 0 && ids[i] < nodes) {
      start = rows[ids[i]];
      end = rows[ids[i] + 1];
    }
    if (spoil && spans) {
      start = random.one_of<int64_t>({-1, INT64_MIN, static_cast<int64_t>(edges) + 1, INT64_MAX, 10});
      end = start == 10 ? random.one_of<int64_t>({9, INT64_MIN, static_cast<int64_t>(edges) + 1}) : start;
    }
    pairs.push_back(start);
    pairs.push_back(end);
    if (spoil && first_bad < 0) {
      first_bad = i;
      wanted.bad_position = i;
      wanted.bad_start = start;
      wanted.bad_end = end;
    }
    if (!spoil) wanted.total += std::min<int64_t>(end - start, 10);
  }
  std::vector<int64_t> stored_rows = rows;
  const SpreadTable table(stored_rows, starts_of(rows.size(), 3, false, random));
  Device center_ids(centers * 8), span_pairs(centers * 16), offsets((centers + 1) * 4);
  wide ? center_ids.put(ids) : center_ids.put(narrowed<int32_t>(ids));
  span_pairs.put(pairs);
  wmk_sample_offsets_args count{};
  count.neighbours.row_pointers = table.args();
  count.neighbours.centers = center_ids.as<void>();
  count.neighbours.spans = spans ? span_pairs.as<int64_t>() : nullptr;
  count.neighbours.count = centers;
  count.neighbours.center_bytes = wide ? 8 : 4;
  count.edges = edges;
  count.take = {WMK_TAKE_AT_MOST, 10};
  count.offsets = offsets.as<int32_t>();
  Shared<wmk_counted> counted(1);
  count.counted = counted.get();
  uint64_t needed = 0;
  count.needed_bytes = &needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  Device scratch(needed);
  scratch.poison();
  count.scratch = scratch.address();
  count.scratch_bytes = needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  CUDA(cudaDeviceSynchronize());
  if (memcmp(counted.get(), &wanted, sizeof wanted) == 0) return true;
  fprintf(stderr,
          "WRONG hostile: %d centers, spans %d, wide %d: total %llu bad %lld [%lld, %lld) for %llu %lld [%lld, %lld)\n",
          centers, spans, wide, (unsigned long long)counted[0].total, (long long)counted[0].bad_position,
          (long long)counted[0].bad_start, (long long)counted[0].bad_end, (unsigned long long)wanted.total,
          (long long)wanted.bad_position, (long long)wanted.bad_start, (long long)wanted.bad_end);
  return false;
}

// Totals beyond INT are told as they are.
bool large_total_case() {
  const int centers = 5000;
  std::vector<int64_t> pairs;
  uint64_t total = 0;
  for (int i = 0; i < centers; i++) {
    pairs.push_back(i);
    pairs.push_back(3000000 + i * 2);
    total += 3000000 + i;
  }
  Device span_pairs(centers * 16), offsets((centers + 1) * 4);
  span_pairs.put(pairs);
  wmk_sample_offsets_args count{};
  count.neighbours.spans = span_pairs.as<int64_t>();
  count.neighbours.count = centers;
  count.neighbours.center_bytes = 8;
  count.edges = 1ull << 40;
  count.take = {WMK_TAKE_ALL, 0};
  count.offsets = offsets.as<int32_t>();
  Shared<wmk_counted> counted(1);
  count.counted = counted.get();
  uint64_t needed = 0;
  count.needed_bytes = &needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  Device scratch(needed);
  count.scratch = scratch.address();
  count.scratch_bytes = needed;
  CUDA(wmk_sample_offsets(&count, nullptr));
  CUDA(cudaDeviceSynchronize());
  if (counted[0].total == total) return true;
  fprintf(stderr, "WRONG large total: %llu for %llu\n", (unsigned long long)counted[0].total,
          (unsigned long long)total);
  return false;
}

// Degrees beyond 32 bits; only edges are written, there is no memory for so many.
bool huge_degree_case(uint32_t most, int64_t degree) {
  const int centers = 40;
  const int64_t start = 5;
  std::vector<int64_t> pairs;
  std::vector<int32_t> begins{0};
  for (int i = 0; i < centers; i++) {
    pairs.push_back(start + i);
    pairs.push_back(start + i + degree);
    begins.push_back(begins.back() + static_cast<int32_t>(most));
  }
  const uint64_t total = begins.back(), seed = 99;
  Device span_pairs(centers * 16), offsets(begins.size() * 4), edges(total * 8);
  span_pairs.put(pairs);
  offsets.put(begins);
  edges.poison();
  wmk_sample_args args{};
  args.neighbours.spans = span_pairs.as<int64_t>();
  args.neighbours.count = centers;
  args.seed = seed;
  args.take = {WMK_TAKE_AT_MOST, most};
  args.offsets = offsets.as<int32_t>();
  args.total = total;
  args.edges = edges.as<int64_t>();
  CUDA(wmk_sample(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  std::vector<int64_t> wanted;
  for (int i = 0; i < centers; i++) {
    for (uint64_t y : even_reference(seed, i, degree, most)) wanted.push_back(pairs[2 * i] + static_cast<int64_t>(y));
  }
  if (edges.get<int64_t>(total) == wanted) return true;
  fprintf(stderr, "WRONG huge degree: %u of %lld\n", most, static_cast<long long>(degree));
  return false;
}

bool span_ids_case(Random &random, int count, bool wide) {
  const uint64_t nodes = 1000, first = random.below(50);
  std::vector<int64_t> centers(count), wanted;
  for (auto &v : centers) {
    v = static_cast<int64_t>(random.below(nodes + 10)) - 5;
    const bool is_node = v >= 0 && static_cast<uint64_t>(v) < nodes;
    wanted.push_back(is_node ? v + first : -1);
    wanted.push_back(is_node ? v + first + 1 : -1);
  }
  Device ids(count * 8), out(count * 16), spans(count * 16), shifted(count * 16);
  wide ? ids.put(centers) : ids.put(narrowed<int32_t>(centers));
  out.poison();
  spans.poison();
  const wmk_span_ids_args args{ids.as<void>(),    static_cast<uint64_t>(count), nodes,          first,
                               out.as<int64_t>(), spans.as<int64_t>(),          wide ? 8u : 4u, 0};
  CUDA(wmk_span_ids(&args, nullptr));
  const wmk_shift_args shift{out.as<int64_t>(), 2 * static_cast<uint64_t>(count), -7, shifted.as<int64_t>()};
  CUDA(wmk_shift(&shift, nullptr));
  CUDA(cudaDeviceSynchronize());
  bool right =
      out.get<int64_t>(2 * count) == wanted && spans.get<int64_t>(2 * count) == std::vector<int64_t>(2 * count, -1);
  for (auto &x : wanted) x -= 7;
  right = right && shifted.get<int64_t>(2 * count) == wanted;
  if (!right) fprintf(stderr, "WRONG span ids: %d centers, wide %d\n", count, wide);
  return right;
}

}  // namespace

void check_graph(Tally &tally, Size size) {
  Random random{2026};
  int64_t inexact = 0;
  const std::vector<uint32_t> all = {1,   2,   3,   5,   10,  11,   16,   17,   25,   30,   31,
                                     32,  33,  64,  65,  96,  97,   128,  129,  192,  193,  256,
                                     257, 384, 385, 700, 769, 1000, 1024, 1025, 2048, 2049, 5000};
  const std::vector<uint32_t> some = {3, 10, 32, 50, 300, 1500, 2100};
  // One for every sampler there is.
  const std::vector<uint32_t> fewest = {3, 32, 300, 1000, 2100};
  const bool quick = size != Size::all, few = size == Size::few;
  int turn = 0;
  for (const uint32_t most : few ? fewest : quick ? some : all) {
    const bool large = most > 256;
    for (int round = 0; round < (few ? 3 : quick ? 2 : large ? 4 : 8); round++, turn++) {
      Case c{};
      c.nodes = few ? 60 : large ? 300 : 2000;
      c.centers = large ? 100 + static_cast<int>(random.below(100)) : 1 + static_cast<int>(random.below(1500));
      if (few) c.centers = large ? 12 : 60;
      c.places = few ? std::array<int, 3>{1, 3, 40}[round] : random.one_of({1, 1, 3, 16, 40});
      c.equal = random.below(2);
      c.spans = random.below(4) == 0;
      c.wide_centers = random.below(2);
      c.wide_columns = random.below(2);
      c.kind = WMK_TAKE_AT_MOST;
      c.most = most;
      c.degree = random.one_of<uint64_t>({most + 3ull, most * 2ull, most * (few ? 2ull : 4ull)});
      c.degree = std::max<uint64_t>(c.degree, 20);
      c.hubs = !few && round % 2 ? 3 : 0;
      tally.count(sample_case(random, c, inexact));
      c.weights = 1 + static_cast<int>(few ? turn % 2 : random.below(2));
      c.fetched = few ? turn % 4 == 2 : random.below(3) == 0;
      tally.count(sample_case(random, c, inexact));
    }
    Case hub{};
    hub.nodes = 10;
    hub.centers = few ? 10 : 70;
    hub.places = 2;
    hub.wide_centers = hub.wide_columns = true;
    hub.kind = WMK_TAKE_AT_MOST;
    hub.most = most;
    hub.degree = quick ? 300 : 3000;
    hub.hubs = 2;
    tally.count(sample_case(random, hub, inexact));
    hub.weights = 1;
    tally.count(sample_case(random, hub, inexact));
  }
  printf("weighted choices that differ by the last bits of a logarithm: %lld\n", static_cast<long long>(inexact));
  for (const uint32_t kind : {WMK_TAKE_ALL, WMK_TAKE_ALL_ABOVE}) {
    for (int round = 0; round < (few ? 3 : 12); round++) {
      Case c{};
      c.nodes = few ? 200 : 3000;
      c.centers = 1 + static_cast<int>(random.below(round < 6 ? 100 : 8000));
      // More than one block of them.
      if (few && round == 2) c.centers = 1500;
      c.places = random.one_of({1, 3, 40});
      c.spans = random.below(2);
      c.wide_centers = random.below(2);
      c.wide_columns = random.below(2);
      c.kind = kind;
      c.most = 30;
      c.degree = few ? 40 : random.one_of<uint64_t>({0, 1, 40, 300});
      c.hubs = round % 3;
      tally.count(sample_case(random, c, inexact));
    }
  }
  for (int round = 0; round < (few ? 6 : 24); round++) {
    const int centers =
        few ? std::array<int, 3>{1, 100, 1500}[round / 2] : random.one_of({1, 100, 1024, 1025, 5000, 50000});
    tally.count(hostile_case(random, centers, few ? round % 2 : random.below(2), random.below(2)));
  }
  tally.count(large_total_case());
  for (const uint32_t most : {10u, 32u, 100u, 1024u}) {
    for (const int64_t degree : {0x7fffffffll, 0x80000010ll, 0xffffffffll, 0x100000001ll, 0x3000000000ll}) {
      if (few && (most == 32 || (degree != 0x80000010ll && degree != 0x3000000000ll))) continue;
      tally.count(huge_degree_case(most, degree));
    }
  }
  for (const int count : {1, 255, few ? 1000 : 100000}) {
    tally.count(span_ids_case(random, count, true));
    tally.count(span_ids_case(random, count, false));
  }
}
