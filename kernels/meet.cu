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

__global__ void __launch_bounds__(kLanes) meet_kernel(wmk_board *board, const uint32_t *abort, uint32_t parts) {
  wait_for_before();
  if (parts & WMK_MEET_LETS_NEXT) let_next_begin();
  const uint32_t lane = threadIdx.x;
  const uint64_t meeting = board->epoch + 1;
  if (parts & WMK_MEET_ARRIVE) post_arrival(board, meeting, lane, kLanes);
  __syncwarp();
  if (!(parts & WMK_MEET_WAIT)) return;
  bool aborted = false;
  for (uint32_t peer = lane; peer < board->ranks && !aborted; peer += kLanes) {
    if (peer == board->rank) continue;
    uint32_t pause_ns = kFirstPauseNs;
    // A peer may be a meeting ahead.
    for (uint32_t looks = 1; acquire(posts_of(board) + peer) < meeting; looks++) {
      if (looks % kLooksAnAbort == 0 && peek(abort) != 0) {
        aborted = true;
        break;
      }
      __nanosleep(pause_ns);
      pause_ns = pause_ns * 2 < kLastPauseNs ? pause_ns * 2 : kLastPauseNs;
    }
  }
  __syncwarp();
  if (lane == 0) board->epoch = meeting;
}

cudaError_t meet(const wmk_meet_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return load_kernel(reinterpret_cast<const void *>(meet_kernel), handle_of<meet_kernel>);
  }
  auto *board = static_cast<wmk_board *>(args->board);
  const uint32_t *abort = args->abort;
  uint32_t parts = args->parts;
  void *parameters[] = {&board, &abort, &parts};
  return enqueue(reinterpret_cast<const void *>(meet_kernel), handle_of<meet_kernel>, 1, kLanes, parameters, stream,
                 may_begin_early(stream));
}

}  // namespace

}  // namespace wmk

int wmk_meet(const wmk_meet_args *args, wmk_stream stream) { return wmk::told(wmk::meet(args, stream)); }
