// A meeting of ranks in the order of their streams: a kernel of its own, a lane a peer, so that whoever waits keeps no
// multiprocessor from the work that is waited for. The number of the meeting is in device memory and the kernel counts
// it on, so that a captured graph can be replayed.

#include <cuda_runtime.h>

#include "early.cuh"
#include "enqueue.cuh"
#include "meet.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kLanes = 32;
// Looks at the host's word cost a trip over the bus, so most looks are at the own board.
constexpr uint32_t kLooksAnAbort = 16;
constexpr uint32_t kFirstPauseNs = 32, kLastPauseNs = 512;

__device__ __forceinline__ uint64_t acquire(const uint64_t *word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t peek(const uint32_t *word) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

// Waits until `word` is `least` or more, or all waiting is over; whether it is `least`.
__device__ __forceinline__ bool wait_until(const uint64_t *word, uint64_t least, const uint32_t *abort) {
  uint32_t pause_ns = kFirstPauseNs;
  for (uint32_t looks = 1; acquire(word) < least; looks++) {
    if (looks % kLooksAnAbort == 0 && peek(abort) != 0) return false;
    __nanosleep(pause_ns);
    pause_ns = pause_ns * 2 < kLastPauseNs ? pause_ns * 2 : kLastPauseNs;
  }
  return true;
}

constexpr uint32_t kBoth = WMK_MEET_ARRIVE | WMK_MEET_WAIT;
// A part beside those of wmk_meet_part.
constexpr uint32_t kLocks = 1u << 31;

// Locks the board for the one thread that calls it; false where all waiting is over first.
__device__ __forceinline__ bool lock(wmk_board *board, const uint32_t *abort) {
  uint32_t pause_ns = kFirstPauseNs;
  for (uint32_t looks = 1; atomicCAS(&board->busy, 0, 1) != 0; looks++) {
    if (looks % kLooksAnAbort == 0 && peek(abort) != 0) return false;
    __nanosleep(pause_ns);
    pause_ns = pause_ns * 2 < kLastPauseNs ? pause_ns * 2 : kLastPauseNs;
  }
  __threadfence();
  return true;
}

// `turn` as wmk_meetings has it, from 1 on; 0 in a graph.
__global__ void __launch_bounds__(kLanes)
    meet_kernel(wmk_board *board, const uint32_t *abort, uint32_t parts, uint64_t turn) {
  wait_for_before();
  if (parts & WMK_MEET_LETS_NEXT) let_next_begin();
  const uint32_t lane = threadIdx.x;
  if (turn > 1) wait_until(&board->turns, turn - 1, abort);
  bool locked = false;
  if (parts & kLocks) {
    if (lane == 0) locked = lock(board, abort);
    __syncwarp();
  }
  const uint64_t meeting = acquire(&board->epoch) + 1;
  if (parts & WMK_MEET_ARRIVE) post_arrival(board, meeting, lane, kLanes);
  __syncwarp();
  if (!(parts & WMK_MEET_WAIT)) return;
  // A peer may be a meeting ahead.
  bool waits = true;
  for (uint32_t peer = lane; peer < board->ranks && waits; peer += kLanes) {
    if (peer != board->rank) waits = wait_until(posts_of(board) + peer, meeting, abort);
  }
  __syncwarp();
  if (lane != 0) return;
  board->epoch = meeting;
  if (turn != 0) asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(&board->turns), "l"(turn) : "memory");
  if (locked) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&board->busy), "r"(0) : "memory");
}

cudaError_t meet(const wmk_meet_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return load_kernel(reinterpret_cast<const void *>(meet_kernel), handle_of<meet_kernel>);
  }
  auto *board = static_cast<wmk_board *>(args->board);
  const uint32_t *abort = args->abort;
  uint32_t parts = args->parts;
  const bool now = !records(stream);
  wmk_meetings *const so_far = (parts & kBoth) == kBoth ? args->so_far : nullptr;
  if (so_far != nullptr && !now) so_far->recorded = 1;
  if (so_far != nullptr && so_far->recorded) parts |= kLocks;
  uint64_t turn = so_far != nullptr && now ? so_far->turns + 1 : 0;
  void *parameters[] = {&board, &abort, &parts, &turn};
  const cudaError_t code = enqueue(reinterpret_cast<const void *>(meet_kernel), handle_of<meet_kernel>, 1, kLanes,
                                   parameters, stream, now && can_begin_early());
  // Nobody may wait for a turn that never comes.
  if (code == cudaSuccess && turn != 0) so_far->turns = turn;
  return code;
}

}  // namespace

}  // namespace wmk

int wmk_meet(const wmk_meet_args *args, wmk_stream stream) { return wmk::told(wmk::meet(args, stream)); }
