// Caches of several ranks on one device beside what a host knows of them.
#pragma once

#include <algorithm>
#include <memory>
#include <set>

#include "../args_cache.h"
#include "../common/cache.h"
#include "check.h"

// Memory of the host that kernels reach, or of the device.
struct Rows {
  std::unique_ptr<Device> device;
  std::unique_ptr<Shared<uint64_t>> host;
  uint64_t bytes;
  Rows(uint64_t bytes, bool on_host) : bytes(bytes) {
    if (on_host) {
      host = std::make_unique<Shared<uint64_t>>(bytes / 8);
    } else {
      device = std::make_unique<Device>(bytes);
    }
  }
  uint64_t address() const { return host ? reinterpret_cast<uint64_t>(host->get()) : device->address(); }
  void put(const std::vector<uint64_t> &words) {
    CUDA(cudaMemcpy(reinterpret_cast<void *>(address()), words.data(), words.size() * 8, cudaMemcpyDefault));
  }
  std::vector<uint64_t> get() const {
    std::vector<uint64_t> words(bytes / 8);
    CUDA(cudaMemcpy(words.data(), reinterpret_cast<void *>(address()), bytes, cudaMemcpyDefault));
    return words;
  }
};

// A rank's cache and what its rows are.
struct Rank {
  uint64_t first, rows, stride, state_stride, sets, words;
  Rows table, states;
  Device tags, lines, state_lines, of_sets, sketch, head;
  std::vector<uint64_t> truth, state_truth;
  wmk_cache cache{};
  // What the counters should say.
  uint64_t lookups = 0, hits = 0;

  Rank(Random &random, uint64_t first, uint64_t rows, uint64_t stride, uint64_t state_stride, uint64_t sets,
       bool direct, bool on_host)
      : first(first),
        rows(rows),
        stride(stride),
        state_stride(state_stride),
        sets(sets),
        words(1 + random.below(sets * 40)),
        table(std::max<uint64_t>(rows, 1) * stride, on_host),
        states(std::max<uint64_t>(rows * state_stride, 16), on_host),
        tags(sets * 128),
        lines(sets * 32 * stride),
        state_lines(std::max<uint64_t>(sets * 32 * state_stride, 16)),
        of_sets(sets * sizeof(cache_set)),
        sketch(words * 8),
        head(sizeof(cache_head)),
        truth(rows * stride / 8),
        state_truth(rows * state_stride / 8) {
    for (auto &word : truth) word = random.next();
    for (auto &word : state_truth) word = random.next();
    table.put(truth);
    states.put(state_truth);
    for (Device *memory : {&tags, &of_sets, &sketch, &head}) CUDA(cudaMemset(memory->as<void>(), 0, memory->bytes()));
    lines.poison();
    state_lines.poison();
    cache = {tags.address(),
             lines.address(),
             head.address(),
             of_sets.address(),
             sketch.address(),
             table.address(),
             stride,
             state_stride ? state_lines.address() : 0,
             states.address(),
             state_stride,
             first,
             rows,
             sets,
             words,
             direct,
             0};
  }

  struct Image {
    std::vector<uint32_t> tags;
    std::vector<cache_set> sets;
    std::vector<uint64_t> sketch;
    std::set<uint32_t> cached() const {
      std::set<uint32_t> rows;
      for (uint32_t tag : tags) {
        if (tag != 0) rows.insert(tag - 1);
      }
      return rows;
    }
  };
  Image look() const {
    return {tags.get<uint32_t>(sets * 32), of_sets.get<cache_set>(sets), sketch.get<uint64_t>(words)};
  }

  uint64_t set_of(uint64_t row) const { return cache_set_of(row, cache_hash(row), sets, cache.whole); }
  uint64_t word_of(uint64_t row) const { return sketch_word(cache_hash(row), words); }

  // How often a row without a line was asked for, and one in a line.
  uint32_t estimate(const Image &image, uint32_t row) const {
    return sketch_estimate(image.sketch[word_of(row)], cache_hash(row));
  }
  static uint32_t count(const Image &image, uint64_t line) {
    return image.sets[line / 32].counts[line % 32 / 8] >> line % 8 * 4 & 15;
  }

  // Every value is where it should be.
  bool sound() const {
    const Image image = look();
    const auto table_words = table.get(), state_words = states.get();
    const auto line_words = lines.get<uint64_t>(sets * 32 * stride / 8),
               state_line_words = state_lines.get<uint64_t>(sets * 32 * state_stride / 8);
    std::vector<bool> in_table(rows, true), states_in_table(rows, true);
    std::set<uint32_t> seen;
    auto same = [](const std::vector<uint64_t> &a, uint64_t i, const std::vector<uint64_t> &b, uint64_t j,
                   uint64_t bytes) { return memcmp(a.data() + i * bytes / 8, b.data() + j * bytes / 8, bytes) == 0; };
    for (uint64_t line = 0; line < sets * 32; line++) {
      const uint32_t tag = image.tags[line], bit = 1u << line % 32;
      const cache_set &of_set = image.sets[line / 32];
      if (of_set.candidates != 0 || of_set.newest != 0) return fprintf(stderr, "WRONG: a list is left\n"), false;
      if (tag == 0) {
        if ((of_set.dirty | of_set.state_present | of_set.state_dirty) & bit)
          return fprintf(stderr, "WRONG: marks without a row\n"), false;
        continue;
      }
      const uint32_t row = tag - 1;
      if (row >= rows || set_of(row) != line / 32 || !seen.insert(row).second) {
        return fprintf(stderr, "WRONG: row %u in line %llu\n", row, static_cast<unsigned long long>(line)), false;
      }
      if (!same(line_words, line, truth, row, stride)) return fprintf(stderr, "WRONG: values of row %u\n", row), false;
      if (of_set.dirty & bit) in_table[row] = false;
      if ((of_set.state_dirty & ~of_set.state_present) & bit)
        return fprintf(stderr, "WRONG: dirty states that are not there\n"), false;
      if ((of_set.state_present & bit) && !same(state_line_words, line, state_truth, row, state_stride)) {
        return fprintf(stderr, "WRONG: states of row %u\n", row), false;
      }
      if (of_set.state_dirty & bit) states_in_table[row] = false;
    }
    for (uint64_t row = 0; row < rows; row++) {
      if (in_table[row] && !same(table_words, row, truth, row, stride)) {
        return fprintf(stderr, "WRONG: row %llu of the table\n", static_cast<unsigned long long>(row)), false;
      }
      if (states_in_table[row] && !same(state_words, row, state_truth, row, state_stride)) {
        return fprintf(stderr, "WRONG: states %llu of the table\n", static_cast<unsigned long long>(row)), false;
      }
    }
    return true;
  }
};

struct World {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<uint64_t> starts{0};
  uint64_t stride;
  bool direct;
  uint64_t sets;
};

struct Ids {
  Device memory;
  int bytes;
  uint64_t count;
  Ids(const std::vector<int64_t> &ids, int bytes) : memory(ids.size() * 8), bytes(bytes), count(ids.size()) {
    if (bytes == 8) {
      memory.put(ids);
    } else {
      memory.put(std::vector<int32_t>(ids.begin(), ids.end()));
    }
  }
};

inline std::vector<int64_t> draw(Random &random, const World &world, int64_t count) {
  const int64_t rows = world.starts.back();
  const uint64_t kind = random.below(4);
  std::vector<int64_t> ids(count);
  const int64_t hot = random.below(rows);
  for (auto &id : ids) {
    const uint64_t what = random.below(20);
    if (what == 0) {
      id = random.below(2) ? -1 - static_cast<int64_t>(random.below(1u << 30)) : rows + random.below(1u << 20);
    } else if (kind == 0) {
      id = random.below(rows);
    } else if (kind == 1) {  // a favourite
      id = random.below(3) ? hot : random.below(rows);
    } else if (kind == 2) {  // few
      id = (hot + random.below(1 + random.below(50))) % rows;
    } else {  // a power law
      id = static_cast<int64_t>(rows * ((random.next() >> 11) * 0x1p-53) * ((random.next() >> 11) * 0x1p-53) *
                                ((random.next() >> 11) * 0x1p-53));
    }
  }
  return ids;
}
