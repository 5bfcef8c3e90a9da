// The cache against a twin on the host: after every operation the values are right wherever they may be, no row is in a
// set twice, what is not dirty is in the table, and rows entered because they were asked for more often.

#include <array>
#include <map>

#include "cache_world.h"

namespace {

// Every warp changes a row in its place, where sorted rows differ from the one before: the words of the row become
// value, those of its states value + 1. What was read of the states before is told.
__global__ void change_rows(const __grid_constant__ wmk_cache_locate_args at, const uint32_t *rows,
                            const uint64_t *values, uint64_t *states_before) {
  const uint32_t k = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (k >= at.count || rows[k] >= at.cache.rows || (k > 0 && rows[k] == rows[k - 1])) return;
  for (uint64_t word = lane; word < at.cache.stride_bytes / 8; word += 32) {
    reinterpret_cast<uint64_t *>(at.row_places[k])[word] = values[k] + word;
  }
  if (at.cache.state_stride_bytes == 0) return;
  for (uint64_t word = lane; word < at.cache.state_stride_bytes / 8; word += 32) {
    const uint64_t before = reinterpret_cast<const uint64_t *>(at.state_sources[k])[word];
    if (word == 0) states_before[k] = before;
    reinterpret_cast<uint64_t *>(at.state_targets[k])[word] = values[k] + 1 + word;
  }
}

bool adjust(Random &random, const World &world, int64_t count, bool few) {
  const auto ids = draw(random, world, count);
  const Ids on_device(ids, random.below(2) ? 8 : 4);
  const bool counted = random.below(2);
  Device how_many(8);
  const uint64_t used = counted ? random.below(count + 10) : count;
  how_many.put(&used, 8);
  const uint64_t live = std::min<uint64_t>(used, count);
  for (const auto &rank : world.ranks) {
    const Rank::Image before = rank->look();
    const auto cached = before.cached();
    wmk_cache_adjust_args args{};
    args.cache = rank->cache;
    args.ids = on_device.memory.as<void>();
    args.count = count;
    args.count_at = counted ? how_many.as<uint64_t>() : nullptr;
    args.id_bytes = on_device.bytes;
    args.order_bits = random.below(WMK_MOST_CACHE_ORDER_BITS + 1);
    args.load_blocks = 1 + random.below(140);
    args.ages = random.below(5) == 0;
    uint64_t needed = 0;
    args.needed_bytes = &needed;
    // Loads by others are told, and done here by hand.
    const bool tells = random.below(4) == 0 && [&] {
      for (const auto &of_set : before.sets) {
        if (of_set.dirty | of_set.state_dirty) return false;
      }
      return true;
    }();
    Device load_ids(count * 8), load_lines(count * 8);
    if (tells) {
      args.load_ids = load_ids.as<int64_t>();
      args.load_lines = load_lines.as<int64_t>();
    }
    // Or all of the ids are read as well.
    const bool reads = !tells && !counted && world.ranks.size() == 1 && (few || random.below(2));
    const uint32_t dtype = random.one_of<uint32_t>({dtype_int8, dtype_int16, dtype_int, dtype_int64});
    const uint64_t elt = dtype_bytes(dtype), out_stride = rank->stride + random.below(3) * elt,
                   shift = random.below(3) * elt;
    Device output(shift + count * out_stride);
    output.poison();
    wmk_cache_read_args read{};
    read.cache = rank->cache;
    const uint64_t base = rank->table.address();
    read.rows.table = {&base, nullptr, 1, 0, rank->stride, rank->rows};
    read.rows.ids = on_device.memory.as<void>();
    read.rows.id_bytes = on_device.bytes;
    read.rows.count = count;
    read.rows.plain = output.address() + shift;
    read.rows.plain_stride_bytes = out_stride;
    read.rows.cols = rank->stride / elt;
    read.rows.table_dtype = read.rows.plain_dtype = dtype;
    read.rows.blocks = args.load_blocks;
    read.hit_blocks = 1 + random.below(300);
    read.order_bits = args.order_bits;
    read.ages = args.ages;
    read.needed_bytes = &needed;
    auto call = [&] { CUDA(reads ? wmk_cache_read(&read, nullptr) : wmk_cache_adjust(&args, nullptr)); };
    call();
    Device scratch(needed);
    scratch.poison();
    args.scratch = read.scratch = scratch.address();
    args.scratch_bytes = read.scratch_bytes = needed;
    call();
    CUDA(cudaDeviceSynchronize());
    if (reads) {
      std::vector<uint8_t> want(output.bytes(), 0xa5);
      for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || static_cast<uint64_t>(ids[i]) >= rank->rows) continue;
        memcpy(&want[shift + i * out_stride], rank->truth.data() + ids[i] * rank->stride / 8, rank->stride);
      }
      if (output.get<uint8_t>(output.bytes()) != want)
        return fprintf(stderr, "WRONG: what an adjusting gather reads\n"), false;
    }
    if (tells) {
      const auto told = load_ids.get<int64_t>(count), lines = load_lines.get<int64_t>(count);
      for (int64_t i = 0; i < count; i++) {
        if ((told[i] < 0) != (lines[i] < 0)) return fprintf(stderr, "WRONG: half a load is told\n"), false;
        if (told[i] < 0) continue;
        if (told[i] != ids[i])
          return fprintf(stderr, "WRONG: %lld is told for %lld\n", (long long)told[i], (long long)ids[i]), false;
        CUDA(cudaMemcpy(rank->lines.as<char>() + lines[i] * rank->stride,
                        rank->truth.data() + (told[i] - rank->first) * rank->stride / 8, rank->stride,
                        cudaMemcpyDefault));
      }
    }
    if (!rank->sound()) return false;
    const Rank::Image after = rank->look();
    // Who asked, and whether the rules were kept set by set.
    std::map<uint64_t, std::set<uint32_t>> missed;
    std::map<uint64_t, uint64_t> uses_of_set;
    std::map<uint32_t, uint32_t> uses;
    std::set<uint64_t> raised;
    for (uint64_t i = 0; i < live; i++) {
      const uint64_t row = ids[i] - rank->first;
      if (ids[i] < 0 || row >= rank->rows) continue;
      rank->lookups++;
      uses[row]++;
      uses_of_set[rank->set_of(row)]++;
      if (cached.count(row)) {
        rank->hits++;
      } else {
        missed[rank->set_of(row)].insert(row);
      }
    }
    for (uint64_t line = 0; line < rank->sets * 32; line++) {
      if (before.tags[line] != after.tags[line] && before.tags[line] != 0)
        raised.insert(rank->word_of(before.tags[line] - 1));
    }
    for (uint64_t set = 0; set < rank->sets; set++) {
      // Where many count at once, uses may be lost, and where many want to enter, they come in rounds.
      const bool exact = uses_of_set[set] <= 4;
      uint32_t least_left = 99, most_gone = 0, empty = 0, least_entered = 99;
      std::set<uint32_t> entered;
      for (uint64_t line = set * 32; line < set * 32 + 32; line++) {
        const uint32_t was = before.tags[line], is = after.tags[line], count = Rank::count(after, line);
        const uint32_t then = was == 0 ? 0 : std::min(15u, Rank::count(before, line) + uses[was - 1]) >> args.ages;
        if (was == is) {
          if (is == 0) empty++;
          if (is != 0) least_left = std::min(least_left, count);
          if (is != 0 && exact && count != then)
            return fprintf(stderr, "WRONG: row %u is counted as %u, not %u\n", is - 1, count, then), false;
          continue;
        }
        if (is == 0 || !missed[set].count(is - 1))
          return fprintf(stderr, "WRONG: row %u came unasked\n", is - 1), false;
        entered.insert(is - 1);
        if (!raised.count(rank->word_of(is - 1)) && count != rank->estimate(after, is - 1)) {
          return fprintf(stderr, "WRONG: row %u begins with %u\n", is - 1, count), false;
        }
        if (was == 0) continue;
        most_gone = std::max(most_gone, then);
        least_entered = std::min(least_entered, count);
        if (exact && rank->estimate(after, was - 1) < then)
          return fprintf(stderr, "WRONG: row %u is forgotten\n", was - 1), false;
      }
      if (!exact) continue;
      // Halved counts may have become equal.
      if (most_gone > least_left || (!args.ages && least_entered <= most_gone)) {
        return fprintf(stderr, "WRONG: a row with %u went, with %u stayed, with %u entered\n", most_gone, least_left,
                       least_entered),
               false;
      }
      for (uint32_t row : missed[set]) {
        if (entered.count(row) || raised.count(rank->word_of(row))) continue;
        if (empty > 0 || rank->estimate(after, row) > least_left)
          return fprintf(stderr, "WRONG: row %u was kept out\n", row), false;
      }
    }
  }
  return true;
}

bool gather(Random &random, const World &world, int64_t count) {
  const auto ids = draw(random, world, count);
  const Ids on_device(ids, random.below(2) ? 8 : 4);
  const uint64_t rows = world.starts.back();
  std::vector<uint64_t> tags, lines, raws, line_starts;
  for (const auto &rank : world.ranks) {
    tags.push_back(rank->tags.address());
    lines.push_back(rank->lines.address());
    raws.push_back(rank->table.address());
    line_starts.push_back(line_starts.size() * world.sets * 32);
  }
  line_starts.push_back(line_starts.size() * world.sets * 32);
  Device found(count * 8), missed(count * 8), order(count * 4), misses(4);
  missed.poison();
  wmk_cache_lookup_args args{};
  args.tags = tags.data();
  args.start_rows = world.starts.data();
  args.ranks = world.ranks.size();
  args.rows = rows;
  args.set_count = world.sets;
  args.ids = on_device.memory.as<void>();
  args.count = count;
  args.lines = found.as<int64_t>();
  args.missed = missed.as<void>();
  args.order = order.as<uint32_t>();
  args.misses = misses.as<uint32_t>();
  uint64_t needed = 0;
  args.needed_bytes = &needed;
  args.id_bytes = on_device.bytes;
  args.order_bits = random.below(WMK_MOST_CACHE_ORDER_BITS + 1);
  args.whole = world.direct;
  Rank &counting = *world.ranks[random.below(world.ranks.size())];
  args.head = counting.head.address();
  CUDA(wmk_cache_lookup(&args, nullptr));
  Device scratch(needed);
  scratch.poison();
  args.scratch = scratch.address();
  args.scratch_bytes = needed;
  CUDA(wmk_cache_lookup(&args, nullptr));

  const bool converts = random.below(4) == 0;
  const uint32_t dtype =
      converts ? dtype_int : random.one_of<uint32_t>({dtype_int8, dtype_int16, dtype_int, dtype_int64});
  const uint64_t elt = dtype_bytes(dtype), to_dtype = converts ? dtype_int64 : dtype, to_elt = dtype_bytes(to_dtype);
  const uint64_t cols = 1 + random.below(world.stride / elt), skip = random.below(world.stride / elt - cols + 1);
  const uint64_t out_stride = (cols + random.below(4)) * to_elt, shift = random.below(3) * to_elt;
  Device output(shift + count * out_stride);
  output.poison();
  wmk_cache_gather_args pair{};
  for (wmk_rows_args *half : {&pair.hits, &pair.misses}) {
    half->count = count;
    half->plain = output.address() + shift;
    half->plain_stride_bytes = out_stride;
    half->cols = cols;
    half->table_dtype = dtype;
    half->plain_dtype = to_dtype;
    half->blocks = 1 + random.below(300);
    half->id_bytes = 8;
  }
  pair.hits.ids = found.as<void>();
  pair.hits.table = {lines.data(), line_starts.data(), lines.size(), skip * elt, world.stride, line_starts.back()};
  pair.misses.ids = on_device.memory.as<void>();
  pair.misses.id_bytes = on_device.bytes;
  pair.misses.order = order.as<uint32_t>();
  pair.misses.count_at = misses.as<uint32_t>();
  pair.misses.table = {raws.data(), world.starts.data(), raws.size(), skip * elt, world.stride, rows};
  CUDA(wmk_cache_gather(&pair, nullptr));
  CUDA(cudaDeviceSynchronize());

  const auto got = output.get<uint8_t>(output.bytes());
  const auto got_lines = found.get<int64_t>(count);
  std::vector<int64_t> got_missed;
  if (on_device.bytes == 8) {
    got_missed = missed.get<int64_t>(count);
  } else {
    for (int32_t id : missed.get<int32_t>(count)) got_missed.push_back(id);
  }
  std::vector<uint8_t> want(got.size(), 0xa5);
  std::vector<std::set<uint32_t>> cached;
  for (const auto &rank : world.ranks) cached.push_back(rank->look().cached());
  std::set<uint32_t> want_order;
  for (int64_t i = 0; i < count; i++) {
    int64_t want_missed = -1;
    bool want_line = false;
    if (ids[i] >= 0 && static_cast<uint64_t>(ids[i]) < rows) {
      int k = 0;
      while (static_cast<uint64_t>(ids[i]) >= world.starts[k + 1]) k++;
      const Rank &rank = *world.ranks[k];
      const uint64_t row = ids[i] - rank.first;
      want_line = cached[k].count(row);
      counting.lookups++;
      counting.hits += want_line;
      if (!want_line) {
        want_missed = ids[i];
        want_order.insert(i);
      }
      const auto *from = reinterpret_cast<const uint8_t *>(rank.truth.data()) + row * rank.stride + skip * elt;
      uint8_t *to = &want[shift + i * out_stride];
      if (converts) {
        for (uint64_t c = 0; c < cols; c++) {
          int32_t x;
          memcpy(&x, from + c * 4, 4);
          const int64_t wide = x;
          memcpy(to + c * 8, &wide, 8);
        }
      } else {
        memcpy(to, from, cols * elt);
      }
    }
    if ((got_lines[i] >= 0) != want_line || got_missed[i] != want_missed) {
      return fprintf(stderr, "WRONG: id %lld has line %lld, missed %lld\n", (long long)ids[i], (long long)got_lines[i],
                     (long long)got_missed[i]),
             false;
    }
  }
  const uint32_t miss_count = misses.get<uint32_t>(1)[0];
  const auto got_order = order.get<uint32_t>(count);
  if (miss_count != want_order.size() ||
      std::set<uint32_t>(got_order.begin(), got_order.begin() + miss_count) != want_order) {
    return fprintf(stderr, "WRONG: %u misses in order, wanted %zu\n", miss_count, want_order.size()), false;
  }
  uint32_t bits = 1;
  while (1ull << bits < rows) bits++;
  const uint32_t drop = bits - std::min(bits, args.order_bits);
  for (uint32_t k = 1; k < miss_count; k++) {
    if (ids[got_order[k - 1]] >> drop > ids[got_order[k]] >> drop)
      return fprintf(stderr, "WRONG: misses out of order\n"), false;
  }
  if (got != want) {
    const size_t at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
    return fprintf(stderr, "WRONG: byte %zu of a gather, dtype %u cols %llu\n", at, dtype,
                   static_cast<unsigned long long>(cols)),
           false;
  }
  return true;
}

bool change(Random &random, const World &world) {
  Rank &rank = *world.ranks[random.below(world.ranks.size())];
  if (rank.rows == 0) return true;
  std::set<uint32_t> chosen;
  const uint64_t count = 1 + random.below(std::min<uint64_t>(rank.rows, 300));
  for (uint64_t k = 0; k < count; k++) chosen.insert(random.below(random.below(2) ? rank.rows : 1 + rank.rows / 20));
  // Equal rows stand together, in any order, those of no row behind the others.
  std::vector<uint32_t> rows, different(chosen.begin(), chosen.end());
  if (random.below(4) > 0) {
    for (size_t k = different.size(); k > 1; k--) std::swap(different[k - 1], different[random.below(k)]);
  }
  for (uint32_t row : different) rows.insert(rows.end(), 1 + random.below(3), row);
  for (uint64_t k = random.below(3); k > 0; k--) rows.push_back(rank.rows);
  std::vector<uint64_t> values(rows.size()), states(rows.size(), 0);
  for (size_t k = 0; k < rows.size(); k++) {
    values[k] = random.next();
    if (rows[k] == rank.rows || (k > 0 && rows[k] == rows[k - 1])) continue;
    if (rank.state_stride) states[k] = rank.state_truth[rows[k] * rank.state_stride / 8];
    for (uint64_t word = 0; word < rank.stride / 8; word++)
      rank.truth[rows[k] * rank.stride / 8 + word] = values[k] + word;
    for (uint64_t word = 0; word < rank.state_stride / 8; word++) {
      rank.state_truth[rows[k] * rank.state_stride / 8 + word] = values[k] + 1 + word;
    }
  }
  Device on_device(rows.size() * 4), wide(rows.size() * 8), new_values(rows.size() * 8), before(rows.size() * 8);
  Device places(rows.size() * 8), sources(rows.size() * 8), targets(rows.size() * 8), heads(rows.size() * 4), head_count(4);
  Device turns(rows.size() * 8), buckets(4u << WMK_MOST_CACHE_ORDER_BITS);
  on_device.put(rows);
  wide.put(std::vector<uint64_t>(rows.begin(), rows.end()));
  new_values.put(values);
  CUDA(cudaMemset(before.as<void>(), 0, before.bytes()));
  CUDA(cudaMemset(buckets.as<void>(), 0, buckets.bytes()));
  const bool is_wide = random.below(2), has_states = rank.state_stride != 0, lists = random.below(2);
  const wmk_cache_locate_args args{rank.cache,
                                   is_wide ? wide.as<void>() : on_device.as<void>(),
                                   rows.size(),
                                   places.as<uint64_t>(),
                                   has_states ? sources.as<uint64_t>() : nullptr,
                                   has_states ? targets.as<uint64_t>() : nullptr,
                                   lists ? heads.as<uint32_t>() : nullptr,
                                   lists ? head_count.as<uint32_t>() : nullptr,
                                   lists ? turns.as<uint64_t>() : nullptr,
                                   lists ? buckets.as<uint32_t>() : nullptr,
                                   is_wide ? 8u : 4u,
                                   static_cast<uint32_t>(random.below(WMK_MOST_CACHE_ORDER_BITS + 1))};
  CUDA(wmk_cache_locate(&args, nullptr));
  change_rows<<<(rows.size() + 7) / 8, 256>>>(args, on_device.as<uint32_t>(), new_values.as<uint64_t>(),
                                              before.as<uint64_t>());
  CUDA(cudaDeviceSynchronize());
  if (lists) {
    const auto at = places.get<uint64_t>(rows.size());
    std::vector<uint32_t> wanted;
    for (uint32_t k = 0; k < rows.size(); k++) {
      if (rows[k] == rank.rows || (k > 0 && rows[k] == rows[k - 1])) continue;
      if (at[k] == rank.cache.home + rows[k] * rank.stride) wanted.push_back(k);
    }
    auto listed = heads.get<uint32_t>(head_count.get<uint32_t>(1)[0]);
    uint32_t all_bits = 1;
    while (uint64_t{1} << all_bits < rank.cache.rows) all_bits++;
    const uint32_t shift = all_bits - std::min(all_bits, args.order_bits);
    const auto before_of = [&](uint32_t a, uint32_t b) { return rows[a] >> shift < rows[b] >> shift; };
    if (!std::is_sorted(listed.begin(), listed.end(), before_of))
      return fprintf(stderr, "WRONG: the order of rows without a line\n"), false;
    std::sort(listed.begin(), listed.end());
    if (listed != wanted) return fprintf(stderr, "WRONG: the rows without a line\n"), false;
  }
  if (has_states && before.get<uint64_t>(rows.size()) != states)
    return fprintf(stderr, "WRONG: states as they were\n"), false;
  return rank.sound();
}

bool flush(Random &random, const World &world) {
  Rank &rank = *world.ranks[random.below(world.ranks.size())];
  const bool drops = random.below(2);
  const wmk_cache_flush_args args{
      rank.cache, drops ? uint32_t{WMK_CACHE_WRITE_BACK | WMK_CACHE_DROP} : uint32_t{WMK_CACHE_WRITE_BACK}, 0};
  CUDA(wmk_cache_flush(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  if (!rank.sound()) return false;
  const Rank::Image image = rank.look();
  for (const auto &of_set : image.sets) {
    if (of_set.dirty | of_set.state_dirty) return fprintf(stderr, "WRONG: dirty after writing back\n"), false;
  }
  if (drops && !image.cached().empty()) return fprintf(stderr, "WRONG: rows are left\n"), false;
  return true;
}

bool counters_right(const World &world) {
  for (const auto &rank : world.ranks) {
    const auto head = rank->head.get<cache_head>(1)[0];
    if (head.lookups != rank->lookups || head.hits != rank->hits) {
      return fprintf(stderr, "WRONG: %llu lookups and %llu hits, wanted %llu and %llu\n",
                     (unsigned long long)head.lookups, (unsigned long long)head.hits, (unsigned long long)rank->lookups,
                     (unsigned long long)rank->hits),
             false;
    }
  }
  return true;
}

}  // namespace

void check_caches(Tally &tally, int rounds, Size size) {
  Random random{77};
  const bool few = size == Size::few;
  for (int round = 0; round < rounds * (few ? 6 : 12); round++) {
    World world;
    // Few: each kind of world in turn, and fewer steps in it.
    const int ranks = few ? std::array<int, 6>{1, 1, 2, 1, 1, 17}[round % 6] : random.one_of<int>({1, 1, 1, 2, 3, 17});
    world.stride = 16 * (1 + random.below(random.below(3) ? 8 : 70));
    world.direct = few ? round % 6 == 1 : random.below(4) == 0;
    const uint64_t part = 1 + random.below(!few && random.below(2) ? 3000 : 200);
    world.sets = world.direct ? (part + 31) / 32 : 1 + random.below(part / 32 + 2);
    const bool on_host = few ? round % 2 : random.below(2);
    const uint64_t state_stride = (few ? round % 3 != 0 : random.below(2)) ? 16 * (1 + random.below(20)) : 0;
    for (int k = 0; k < ranks; k++) {
      const uint64_t rows = k + 1 < ranks ? part : random.below(part) + (ranks == 1);
      world.ranks.push_back(std::make_unique<Rank>(random, world.starts.back(), rows, world.stride, state_stride,
                                                   world.sets, world.direct, on_host));
      world.starts.push_back(world.starts.back() + rows);
    }
    const int steps = !few ? 12 : ranks > 2 ? 1 : 3;
    for (int step = 0; step < steps; step++) {
      const int64_t count = 1 + random.below(few || random.below(3) ? 400 : 6000);
      tally.count(adjust(random, world, count, few));
      if (few || random.below(2)) tally.count(change(random, world));
      tally.count(gather(random, world, count));
      if (few ? step % 2 == 0 : random.below(4) == 0) tally.count(flush(random, world));
    }
    tally.count(counters_right(world));
  }
}

// One after the other, uses are counted exactly, in lines and for rows that never get one; ageing halves.
void check_counts(Tally &tally, Size size) {
  Random random{5};
  const bool few = size == Size::few;
  World world;
  world.stride = 16;
  world.direct = false;
  world.sets = few ? 1 : 4;
  world.ranks.push_back(std::make_unique<Rank>(random, 0, 4000, 16, 0, world.sets, false, false));
  world.starts.push_back(4000);
  Rank &rank = *world.ranks[0];
  std::vector<int64_t> ids;
  // More rows than lines, and among them some that are used more often than is counted.
  for (int64_t id = 0; id < (few ? 40 : 200); id++) {
    const int64_t times = few && id % 20 != 19 ? 1 + id % 5 : 1 + id % 20;
    for (int64_t k = 0; k < times; k++) ids.push_back(id * 20);
  }
  for (size_t i = ids.size() - 1; i > 0; i--) std::swap(ids[i], ids[random.below(i + 1)]);
  std::map<uint32_t, uint32_t> uses;
  Device on_device(8);
  wmk_cache_adjust_args args{};
  args.cache = rank.cache;
  args.ids = on_device.as<void>();
  args.count = 1;
  args.id_bytes = 8;
  args.load_blocks = 1;
  uint64_t needed = 0;
  args.needed_bytes = &needed;
  CUDA(wmk_cache_adjust(&args, nullptr));
  Device scratch(needed);
  args.scratch = scratch.address();
  args.scratch_bytes = needed;
  auto right = [&](const char *what) {
    const Rank::Image image = rank.look();
    std::map<uint32_t, uint64_t> line_of;
    for (uint64_t line = 0; line < rank.sets * 32; line++) {
      if (image.tags[line] != 0) line_of[image.tags[line] - 1] = line;
    }
    for (const auto &[row, wanted] : uses) {
      // What leaves a line may be counted with others of its word from then on.
      const bool has_line = line_of.count(row);
      const uint32_t is = has_line ? Rank::count(image, line_of[row]) : rank.estimate(image, row);
      if (is < wanted)
        return fprintf(stderr, "WRONG: %s, row %u is counted as %u, not %u\n", what, row, is, wanted), false;
    }
    return rank.sound();
  };
  for (const int64_t id : ids) {
    on_device.put(&id, 8);
    CUDA(wmk_cache_adjust(&args, nullptr));
    CUDA(cudaDeviceSynchronize());
    uses[id] = std::min(15u, uses[id] + 1);
  }
  tally.count(right("used"));
  args.ages = 1;
  const int64_t nobody = -1;
  on_device.put(&nobody, 8);
  CUDA(wmk_cache_adjust(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  for (auto &[row, wanted] : uses) wanted /= 2;
  tally.count(right("halved"));
  // And not less than half is left of what may be more.
  const Rank::Image image = rank.look();
  bool halved = true;
  for (uint64_t word : image.sketch) halved = halved && (word & 0x8888888888888888ull) == 0;
  tally.count(halved);
}
