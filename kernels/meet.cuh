// Arriving at a meeting of ranks: posting the number of the meeting on the boards of all others.
#pragma once

#include "args.h"

namespace wmk {

#ifdef __CUDACC__

__device__ __forceinline__ uint64_t *addresses_of(wmk_board *board) { return reinterpret_cast<uint64_t *>(board + 1); }

__device__ __forceinline__ uint64_t *posts_of(wmk_board *board) { return addresses_of(board) + board->ranks; }

// By `lanes` threads together. What the grid wrote or this thread has seen written is visible to who sees the post.
__device__ __forceinline__ void post_arrival(wmk_board *board, uint64_t meeting, uint32_t lane, uint32_t lanes) {
  for (uint32_t peer = lane; peer < board->ranks; peer += lanes) {
    if (peer == board->rank) continue;
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(addresses_of(board)[peer]), "l"(meeting) : "memory");
  }
}

// The last block of the grid arrives for the rank; every thread calls this as its last act. No board, nothing to do.
__device__ __forceinline__ void arrive_with_last_block(wmk_board *board) {
  if (board == nullptr) return;
  __syncthreads();
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence_system();
    last = atomicAdd(&board->blocks_done, 1) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) {
    __threadfence_system();
    board->blocks_done = 0;
  }
  __syncthreads();
  if (threadIdx.x < 32) post_arrival(board, board->epoch + 1, threadIdx.x, 32);
}

#endif  // __CUDACC__

}  // namespace wmk
