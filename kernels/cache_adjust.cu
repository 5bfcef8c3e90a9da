// Which rows a cache holds follows their use. One kernel counts the ids, in their lines or in the sketch, and hangs
// those without a line on lists, one a set; a warp a set then lets in the rows that are asked for more often than those
// they replace. What entered is read from the table in its order; a gather that adjusts reads all that was missed in
// one go, and copies to the lines what entered. Between calls of a rank the lists are empty.

#include <cuda_runtime.h>

#include "bits.cuh"
#include "cache.cuh"
#include "cache_order.cuh"
#include "common/launch.h"
#include "early.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;
// Rows beyond so many that one call brings to a set wait for a later call: a list is walked one after the other.
constexpr uint32_t kMostCandidates = 64;
// Tries to count a use while others count in the same word.
constexpr int kTries = 4;

// A row that may enter, and the candidate of its set before it, by number + 1.
struct Candidate {
  uint32_t row;
  uint32_t before;
};

// What is to be done for a row that entered.
struct alignas(16) Load {
  uint32_t row;
  uint32_t line;
  uint32_t replaced;
  uint32_t saves;  // what of the replaced row is dirty
};
constexpr uint32_t kSavesRow = 1, kSavesStates = 2;

struct Job {
  wmk_cache cache;
  const void *ids;
  const uint64_t *count_at;
  uint32_t count;
  uint32_t wide_ids;
  Candidate *candidates;
  uint32_t *touched;
  uint32_t *touched_count;
  Load *loads;
  uint32_t *load_count;
  // NULL, or for every id the load that it is told as (-1: none).
  int64_t *load_ids;
  int64_t *load_lines;
  // NULL, or for every id its line (-1: none), and of every load the id that caused it. Then load_lines is written for
  // these.
  int64_t *found;
  uint32_t *load_numbers;
  // Of loads, or where `found` is there, of ids.
  uint64_t *turns;
  Buckets buckets;
  uint32_t *order;
  uint32_t *turn_count;
};

__device__ __forceinline__ uint32_t count_of(const Job &job) {
  if (job.count_at == nullptr) return job.count;
  const uint64_t count = *job.count_at;
  return count < job.count ? static_cast<uint32_t>(count) : job.count;
}

__device__ __forceinline__ void add(uint64_t &counter, uint64_t what) {
  if (what != 0) atomicAdd(reinterpret_cast<unsigned long long *>(&counter), what);
}

__device__ __forceinline__ cache_head &head_of(const wmk_cache &cache) {
  return *reinterpret_cast<cache_head *>(cache.head);
}

// Replaces a word by what `change` makes of it; by nothing, where others keep changing it: then it counts a hot row.
template <class Word, class Change>
__device__ __forceinline__ void change_word(Word *word, Change change) {
  Word seen = __ldcg(word);
#pragma unroll 1
  for (int k = 0; k < kTries; k++) {
    const Word changed = change(seen);
    if (changed == seen) return;
    const Word there = atomicCAS(word, seen, changed);
    if (there == seen) return;
    seen = there;
  }
}

__device__ __forceinline__ unsigned long long *word_of(const wmk_cache &cache, uint64_t hash) {
  return reinterpret_cast<unsigned long long *>(cache.sketch) + sketch_word(hash, cache.sketch_words);
}

__device__ __forceinline__ void count_in_sketch(const wmk_cache &cache, uint64_t hash) {
  change_word(word_of(cache, hash),
              [&](unsigned long long word) -> unsigned long long { return sketch_counted(word, hash); });
}

__device__ __forceinline__ void count_in_line(cache_set *of_set, uint32_t line) {
  const uint32_t shift = line % 8 * 4;
  change_word(&of_set->counts[line / 8],
              [&](uint32_t word) { return (word >> shift & 15) == cache_most_count ? word : word + (1u << shift); });
}

__global__ void __launch_bounds__(kThreads) use_rows(const __grid_constant__ Job job) {
  __shared__ uint32_t lookups, hits;
  if (threadIdx.x == 0) lookups = hits = 0;
  __syncthreads();
  const wmk_cache &cache = job.cache;
  const uint32_t lane = threadIdx.x % 32, count = count_of(job);
  for (uint32_t first = (blockIdx.x * kThreads + threadIdx.x) & ~31u; first < job.count;
       first += gridDim.x * kThreads) {
    const uint32_t i = first + lane;
    uint64_t row = UINT64_MAX;
    if (i < count) {
      const int64_t id = id_at(job.ids, i, job.wide_ids);
      if (id >= 0) row = static_cast<uint64_t>(id) - cache.first_row;
    }
    const bool mine = row < cache.rows;
    const uint64_t hash = cache_hash(row), set = mine ? cache_set_of(row, hash, cache.set_count, cache.whole) : 0;
    cache_set *of_set = sets_of(cache) + set;
    const uint32_t tag = static_cast<uint32_t>(row) + 1;
    const uint32_t line = find_lines(mine ? tags_of(cache.tags, set) : 0, tag, lane);
    const bool misses = mine && line == no_line;
    if (misses) {
      count_in_sketch(cache, hash);
    } else if (mine) {
      count_in_line(of_set, line);
    }
    const uint32_t looking = __popc(__ballot_sync(0xffffffff, mine));
    const uint32_t missing = __ballot_sync(0xffffffff, misses);
    if (lane == 0) {
      atomicAdd(&lookups, looking);
      atomicAdd(&hits, looking - __popc(missing));
    }
    if (i < job.count) {
      if (job.load_ids != nullptr) job.load_ids[i] = job.load_lines[i] = -1;
      if (job.found != nullptr) {
        job.found[i] = mine && !misses ? static_cast<int64_t>(set * cache_set_lines + line) : -1;
        job.turns[i] = misses ? take_turn(job.buckets, row) : no_turn;
      }
    }
    // Equal rows of a warp are one candidate.
    const uint32_t same = __match_any_sync(0xffffffff, misses ? tag : 0);
    bool begins = false;
    if (misses && __ffs(same) - 1 == lane) {
      if (__ldcg(&of_set->candidates) < kMostCandidates) {
        const uint32_t number = atomicAdd(&of_set->candidates, 1);
        begins = number == 0;
        if (number < kMostCandidates) {
          job.candidates[i].row = static_cast<uint32_t>(row);
          job.candidates[i].before = atomicExch(&of_set->newest, i + 1);
        }
      }
    }
    const uint32_t beginning = __ballot_sync(0xffffffff, begins);
    if (beginning != 0) {
      uint32_t at = 0;
      if (lane == 0) at = atomicAdd(job.touched_count, __popc(beginning));
      at = __shfl_sync(0xffffffff, at, 0);
      if (begins) job.touched[at + __popc(beginning & ((1u << lane) - 1))] = static_cast<uint32_t>(set);
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  add(head_of(cache).lookups, lookups);
  add(head_of(cache).hits, hits);
}

__device__ __forceinline__ uint32_t estimate_of(const wmk_cache &cache, uint64_t hash) {
  return sketch_estimate(__ldcg(word_of(cache, hash)), hash);
}

// What the block lets in.
struct Tally {
  uint32_t loads, evictions, write_backs, state_write_backs;
};

// A warp decides for a set. A lane is a line of it and, at the same time, one of up to 32 candidates.
__device__ void admit_to_set(const Job &job, uint32_t set, uint32_t lane, Tally *tally) {
  const wmk_cache &cache = job.cache;
  cache_set *of_set = sets_of(cache) + set;
  uint32_t *tags = reinterpret_cast<uint32_t *>(tags_of(cache.tags, set));
  const uint32_t old_tag = tags[lane], shift = lane % 8 * 4, old_count = of_set->counts[lane / 8] >> shift & 15;
  uint32_t tag = old_tag, count = old_count;
  const uint32_t dirty = of_set->dirty, state_dirty = of_set->state_dirty;
  uint32_t next = of_set->newest;
  // The smaller, the sooner replaced; UINT32_MAX for rows that entered in this call.
  uint32_t worth = tag == 0 ? lane : (count + 1) << 5 | lane;
  uint32_t entered = 0;
  while (next != 0) {
    uint32_t row = 0, number = 0;
    bool asks = false;
    for (uint32_t k = 0; k < 32 && next != 0; k++) {
      const Candidate candidate = job.candidates[next - 1];
      if (lane == k) {
        row = candidate.row;
        number = next - 1;
        asks = true;
      }
      next = candidate.before;
    }
    // Doubles: of this round the first, and what entered in a round before.
    const uint32_t same = __match_any_sync(0xffffffff, asks ? row : UINT32_MAX);
    asks = asks && __ffs(same) - 1 == lane;
    if (entered != 0) {
      for (uint32_t k = 0; k < 32; k++) {
        if (__shfl_sync(0xffffffff, tag, k) == row + 1) asks = false;
      }
    }
    uint32_t wish = asks ? (estimate_of(cache, cache_hash(row)) + 1) << 5 | lane : 0;
    while (true) {
      const uint32_t best = __reduce_max_sync(0xffffffff, wish);
      const uint32_t least = __reduce_min_sync(0xffffffff, worth);
      // Only a row asked for more often replaces another.
      if (best == 0 || least == UINT32_MAX || (least >= 32 && best >> 5 <= least >> 5)) break;
      const uint32_t from = best & 31, to = least & 31;
      const uint32_t new_row = __shfl_sync(0xffffffff, row, from), its = __shfl_sync(0xffffffff, number, from);
      if (lane == from) wish = 0;
      if (lane == to) {
        const bool replaces = tag != 0, was_dirty = dirty >> lane & 1, had_states = state_dirty >> lane & 1;
        const uint32_t line = set * cache_set_lines + lane;
        const uint32_t saves = (was_dirty ? kSavesRow : 0) | (had_states ? kSavesStates : 0);
        if (job.load_ids != nullptr) {
          job.load_ids[its] = static_cast<int64_t>(cache.first_row + new_row);
          job.load_lines[its] = line;
        } else {
          const uint32_t at = atomicAdd(job.load_count, 1);
          job.loads[at] = {new_row, line, tag - 1, saves};
          if (job.found != nullptr) {
            job.load_numbers[at] = its;
            job.load_lines[its] = line;
          } else {
            job.turns[at] = take_turn(job.buckets, new_row);
          }
        }
        atomicAdd(&tally->loads, 1);
        if (replaces) atomicAdd(&tally->evictions, 1);
        if (was_dirty) atomicAdd(&tally->write_backs, 1);
        if (had_states) atomicAdd(&tally->state_write_backs, 1);
        tag = new_row + 1;
        tags[lane] = tag;
        count = (best >> 5) - 1;
        worth = UINT32_MAX;
      }
      entered |= 1u << to;
    }
  }
  if (tag != old_tag && old_tag != 0) {
    const uint64_t hash = cache_hash(old_tag - 1);
    change_word(word_of(cache, hash),
                [&](unsigned long long word) -> unsigned long long { return sketch_raised(word, hash, old_count); });
  }
  count <<= shift;
  for (uint32_t step = 1; step < 8; step *= 2) count |= __shfl_xor_sync(0xffffffff, count, step);
  if (entered != 0 && lane % 8 == 0) of_set->counts[lane / 8] = count;
  if (lane == 0) {
    of_set->candidates = 0;
    of_set->newest = 0;
    if (entered != 0) {
      of_set->dirty = dirty & ~entered;
      of_set->state_present &= ~entered;
      of_set->state_dirty = state_dirty & ~entered;
    }
  }
}

__device__ __forceinline__ void admit_rows_of(const Job &job) {
  __shared__ Tally tally;
  if (threadIdx.x == 0) tally = {};
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32, touched = *job.touched_count;
  for (uint32_t k = blockIdx.x * kWarps + threadIdx.x / 32; k < touched; k += gridDim.x * kWarps) {
    admit_to_set(job, job.touched[k], lane, &tally);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const uint64_t stride_bytes = job.cache.stride_bytes, state_stride_bytes = job.cache.state_stride_bytes;
  cache_head &head = head_of(job.cache);
  add(head.loads, tally.loads);
  add(head.bytes_read, tally.loads * stride_bytes);
  add(head.evictions, tally.evictions);
  add(head.write_backs, tally.write_backs);
  add(head.bytes_written, tally.write_backs * stride_bytes + tally.state_write_backs * state_stride_bytes);
}

__global__ void __launch_bounds__(kThreads) admit_rows(const __grid_constant__ Job job) { admit_rows_of(job); }

// Begun beside the gather before it, where the GPU can: its end is the end of both.
__global__ void __launch_bounds__(kThreads) admit_rows_beside(const __grid_constant__ Job job) {
  admit_rows_of(job);
  wait_for_before();
}

// `bytes`, a multiple of 16, by a warp.
__device__ __forceinline__ void copy_by_warp(uint64_t to, uint64_t from, uint64_t bytes) {
  for (uint64_t at = threadIdx.x % 32 * 16; at < bytes; at += 32 * 16) store(to + at, load<16>(from + at));
}

// Writes back what is dirty of the rows that are replaced.
__global__ void __launch_bounds__(kThreads) save_rows(const __grid_constant__ Job job) {
  const wmk_cache &cache = job.cache;
  const uint32_t loads = *job.load_count;
  for (uint32_t k = blockIdx.x * kWarps + threadIdx.x / 32; k < loads; k += gridDim.x * kWarps) {
    const Load load_of = job.loads[k];
    if (load_of.saves & kSavesRow) {
      copy_by_warp(cache.home + load_of.replaced * cache.stride_bytes, cache.lines + load_of.line * cache.stride_bytes,
                   cache.stride_bytes);
    }
    if (load_of.saves & kSavesStates) {
      copy_by_warp(cache.state_home + load_of.replaced * cache.state_stride_bytes,
                   cache.state_lines + load_of.line * cache.state_stride_bytes, cache.state_stride_bytes);
    }
  }
}

// Pieces of 16 bytes that a thread has on their way.
constexpr int kFlight = 4;

// Brings the rows that entered into their lines.
__global__ void __launch_bounds__(kThreads)
    load_rows(const __grid_constant__ Job job, const split by, uint32_t rows_a_round) {
  const wmk_cache &cache = job.cache;
  const uint32_t loads = *job.load_count;
  for (uint32_t first = 0; first < loads; first += rows_a_round) {
    const uint32_t rows = loads - first < rows_a_round ? loads - first : rows_a_round;
    const uint32_t pieces = rows * by.per_row;
    for (uint32_t tile = blockIdx.x * kThreads * kFlight; tile < pieces; tile += gridDim.x * kThreads * kFlight) {
      uint64_t to[kFlight];
      Bits<16> in[kFlight];
#pragma unroll
      for (int k = 0; k < kFlight; k++) {
        const uint32_t piece = tile + k * kThreads + threadIdx.x;
        const uint32_t r = row_of(by, piece);
        to[k] = 0;
        if (piece >= pieces) continue;
        const Load load_of = job.loads[job.order[first + r]];
        const uint64_t at = uint64_t{piece - r * by.per_row} * 16;
        to[k] = cache.lines + load_of.line * cache.stride_bytes + at;
        in[k] = load<16>(cache.home + load_of.row * cache.stride_bytes + at);
      }
#pragma unroll
      for (int k = 0; k < kFlight; k++) {
        if (to[k] != 0) store(to[k], in[k]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) halve_counts(const __grid_constant__ wmk_cache cache) {
  const uint64_t first = blockIdx.x * uint64_t{kThreads} + threadIdx.x, step = uint64_t{gridDim.x} * kThreads;
  auto *sketch = reinterpret_cast<uint64_t *>(cache.sketch);
  for (uint64_t i = first; i < cache.sketch_words; i += step) sketch[i] = counts_halved(sketch[i]);
  for (uint64_t i = first; i < cache.set_count * 2; i += step) {
    auto *counts = reinterpret_cast<uint64_t *>(sets_of(cache)[i / 2].counts) + i % 2;
    *counts = counts_halved(*counts);
  }
}

template <class... Kernels>
cudaError_t load_kernels(Kernels... kernels) {
  cudaError_t code = cudaSuccess;
  for (const void *kernel : {reinterpret_cast<const void *>(kernels)...}) {
    if (code == cudaSuccess) code = load_code(kernel);
  }
  return code;
}

uint32_t blocks_for(uint64_t work, uint64_t of_block, uint32_t most) {
  const uint64_t needed = (work + of_block - 1) / of_block;
  return needed < most ? static_cast<uint32_t>(needed) : most;
}

// A rank's part as the kernels take it, and their arrays in scratch memory.
struct Plan {
  Job job{};
  uint32_t *zeroed;
  uint32_t zeroed_words;
};

bool is_valid(const wmk_cache &cache, uint64_t count, uint32_t order_bits) {
  return count > 0 && count <= INT32_MAX && order_bits <= WMK_MOST_CACHE_ORDER_BITS && cache.rows < UINT32_MAX &&
         cache.set_count > 0 && cache.set_count <= UINT32_MAX / cache_set_lines && cache.stride_bytes > 0 &&
         cache.stride_bytes % 16 == 0 && cache.stride_bytes / 16 < pieces_limit && cache.state_stride_bytes % 16 == 0;
}

// What both operations take.
Plan plan_for(const wmk_cache &cache, uint64_t count, uint32_t order_bits, Scratch &scratch) {
  Plan plan;
  Job &job = plan.job;
  job.cache = cache;
  job.count = static_cast<uint32_t>(count);
  constexpr uint32_t kWords = 96;
  plan.zeroed_words = kWords + (1u << order_bits);
  plan.zeroed = scratch.take<uint32_t>(plan.zeroed_words);
  job.touched_count = plan.zeroed;
  job.load_count = plan.zeroed + 32;
  job.turn_count = plan.zeroed + 64;
  job.buckets = buckets_for(cache.rows, order_bits, plan.zeroed + kWords);
  job.candidates = scratch.take<Candidate>(count);
  job.touched = scratch.take<uint32_t>(count < cache.set_count ? count : cache.set_count);
  return plan;
}

cudaError_t enqueue_uses(const Plan &plan, cudaStream_t stream) {
  const Job &job = plan.job;
  const cudaError_t code = cudaMemsetAsync(plan.zeroed, 0, plan.zeroed_words * sizeof(uint32_t), stream);
  if (code != cudaSuccess) return code;
  use_rows<<<blocks_for(job.count, kThreads, 2048), kThreads, 0, stream>>>(job);
  return cudaGetLastError();
}

// `beside`: the launch before it is a gather that need not have ended.
cudaError_t enqueue_admissions(const Job &job, bool ages, bool beside, cudaStream_t stream) {
  const uint32_t blocks = blocks_for(job.count, kWarps, 1056);
  cudaError_t code = cudaSuccess;
  if (beside) {
    code = launch_kernel(true, admit_rows_beside, blocks, kThreads, 0, stream, job);
  } else {
    admit_rows<<<blocks, kThreads, 0, stream>>>(job);
  }
  if (ages && code == cudaSuccess) {
    halve_counts<<<blocks_for(job.cache.sketch_words, kThreads * 4, 2048), kThreads, 0, stream>>>(job.cache);
  }
  return code != cudaSuccess ? code : cudaGetLastError();
}

void enqueue_saves(const Job &job, cudaStream_t stream) {
  save_rows<<<blocks_for(job.count, kWarps, 528), kThreads, 0, stream>>>(job);
}

cudaError_t adjust(const wmk_cache_adjust_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return load_kernels(use_rows, admit_rows, admit_rows_beside, order_turns, save_rows, load_rows, halve_counts);
  }
  const wmk_cache &cache = args->cache;
  const bool tells = args->load_ids != nullptr;
  if (!is_valid(cache, args->count, args->order_bits) || (!tells && args->load_blocks == 0)) {
    return cudaErrorInvalidValue;
  }
  Scratch scratch(args->scratch, args->scratch_bytes);
  Plan plan = plan_for(cache, args->count, args->order_bits, scratch);
  Job &job = plan.job;
  if (!tells) {
    job.loads = scratch.take<Load>(job.count);
    job.turns = scratch.take<uint64_t>(job.count);
    job.order = scratch.take<uint32_t>(job.count);
  }
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  job.ids = args->ids;
  job.count_at = args->count_at;
  job.wide_ids = args->id_bytes == 8;
  job.load_ids = args->load_ids;
  job.load_lines = args->load_lines;
  cudaError_t code = enqueue_uses(plan, stream);
  if (code == cudaSuccess) code = enqueue_admissions(job, args->ages != 0, false, stream);
  if (code != cudaSuccess || tells) return code;
  enqueue_saves(job, stream);
  code = enqueue_order(job.turns, job.count, job.load_count, job.buckets, job.order, job.turn_count, stream);
  if (code != cudaSuccess) return code;
  const uint32_t per_row = static_cast<uint32_t>(cache.stride_bytes / 16);
  const uint64_t rows_a_round = (pieces_limit - 1) / per_row;
  load_rows<<<blocks_for(args->count * per_row, kThreads * kFlight, args->load_blocks), kThreads, 0, stream>>>(
      job, split_of(per_row), static_cast<uint32_t>(rows_a_round < INT32_MAX ? rows_a_round : INT32_MAX));
  return cudaGetLastError();
}

cudaError_t read(const wmk_cache_read_args *args, cudaStream_t stream) {
  // Its kernels are those of an adjustment, of a gather through a cache and of a scatter.
  if (args == nullptr) return cudaSuccess;
  const wmk_cache &cache = args->cache;
  const wmk_rows_args &rows = args->rows;
  if (!is_valid(cache, rows.count, args->order_bits) || cache.first_row != 0 || rows.table.rows != cache.rows ||
      rows.table_dtype != rows.plain_dtype || args->hit_blocks == 0) {
    return cudaErrorInvalidValue;
  }
  Scratch scratch(args->scratch, args->scratch_bytes);
  Plan plan = plan_for(cache, rows.count, args->order_bits, scratch);
  Job &job = plan.job;
  job.loads = scratch.take<Load>(job.count);
  job.load_lines = scratch.take<int64_t>(job.count);
  job.load_numbers = scratch.take<uint32_t>(job.count);
  job.found = scratch.take<int64_t>(job.count);
  job.turns = scratch.take<uint64_t>(job.count);
  job.order = scratch.take<uint32_t>(job.count);
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  job.ids = rows.ids;
  job.wide_ids = rows.id_bytes == 8;
  const bool beside = may_begin_early(stream);
  cudaError_t code = enqueue_uses(plan, stream);
  if (code != cudaSuccess) return code;
  code = enqueue_order(job.turns, job.count, nullptr, job.buckets, job.order, job.turn_count, stream);
  if (code != cudaSuccess) return code;

  // The lines still have what they had when the ids were looked up.
  const uint64_t line_starts[2] = {0, cache.set_count * cache_set_lines};
  wmk_cache_gather_args pair{rows, rows};
  pair.misses.order = job.order;
  pair.misses.count_at = job.turn_count;
  pair.hits.table = {&cache.lines, line_starts, 1, 0, cache.stride_bytes, line_starts[1]};
  pair.hits.ids = job.found;
  pair.hits.id_bytes = sizeof(int64_t);
  pair.hits.order = nullptr;
  pair.hits.count_at = nullptr;
  pair.hits.blocks = args->hit_blocks;
  code = static_cast<cudaError_t>(wmk_cache_gather(&pair, stream));
  if (code == cudaSuccess) code = enqueue_admissions(job, args->ages != 0, beside, stream);
  if (code != cudaSuccess) return code;
  enqueue_saves(job, stream);
  wmk_rows_args entering = pair.hits;
  entering.ids = job.load_lines;
  entering.order = job.load_numbers;
  entering.count_at = job.load_count;
  return static_cast<cudaError_t>(wmk_scatter(&entering, stream));
}

}  // namespace

}  // namespace wmk

int wmk_cache_adjust(const wmk_cache_adjust_args *args, wmk_stream stream) {
  return wmk::told(wmk::adjust(args, stream));
}
int wmk_cache_read(const wmk_cache_read_args *args, wmk_stream stream) { return wmk::told(wmk::read(args, stream)); }
