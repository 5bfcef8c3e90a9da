/* Access to the elements of a handle through its global reference, in kernels and on the host. Written by hand.
 *
 *   wholememory_gref_t gref;
 *   wholememory_get_global_reference(&gref, handle);           // on the host
 *   wholememory::device_reference<float> table(gref);          // in a kernel, gref passed by value
 *   float value = table[row * stride + column];
 *
 * Any number of ranks and any partition, empty ranks included. The sizes of the partitions must be multiples of the size of
 * an element. Plain C++11 where there is no CUDA.
 */

#ifndef WHOLEMEMORY_DEVICE_REFERENCE_CUH_
#define WHOLEMEMORY_DEVICE_REFERENCE_CUH_

#include <stddef.h>

#include <wholememory/global_reference.h>

#if defined(__CUDACC__)
#define WHOLEMEMORY_HOST_DEVICE_ __host__ __device__ __forceinline__
#else
#define WHOLEMEMORY_HOST_DEVICE_ inline
#endif

namespace wholememory {

/** The elements of type T behind a global reference, numbered over all ranks from 0. Cheap to copy; owns nothing. */
template <typename T>
class device_reference {
 public:
  explicit WHOLEMEMORY_HOST_DEVICE_ device_reference(const wholememory_gref_t &gref)
      : base_(gref.pointer),
        offsets_(gref.rank_memory_offsets),
        stride_(gref.stride),
        world_size_(gref.world_size),
        same_chunk_(gref.same_chunk) {}

  /** The element at `index`, which must be less than the number of elements. */
  WHOLEMEMORY_HOST_DEVICE_ T &operator[](size_t index) const { return *address(index); }

  /** Where the element at `index` lies. Elements of one rank lie one after the other. */
  WHOLEMEMORY_HOST_DEVICE_ T *address(size_t index) const {
    if (stride_ == 0) return static_cast<T *>(base_) + index;
    const size_t at = index * sizeof(T);
    const int rank = owner(at);
    const size_t begin = same_chunk_ ? static_cast<size_t>(rank) * stride_ : offsets_[rank];
    char *chunk = static_cast<char *>(static_cast<void *const *>(base_)[rank]);
    return reinterpret_cast<T *>(chunk + (at - begin));
  }

  /** The rank that owns the element at `index`; 0 where the ranks form one range. */
  WHOLEMEMORY_HOST_DEVICE_ int rank_of(size_t index) const { return stride_ == 0 ? 0 : owner(index * sizeof(T)); }

 private:
  /** The rank whose bytes [offsets[rank], offsets[rank + 1]) hold byte `at`, by halving. */
  WHOLEMEMORY_HOST_DEVICE_ int owner(size_t at) const {
    if (same_chunk_) return static_cast<int>(at / stride_);
    int low = 0;
    int high = world_size_ - 1;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (at < offsets_[middle + 1]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  void *base_;
  const size_t *offsets_;
  size_t stride_;
  int world_size_;
  bool same_chunk_;
};

}  // namespace wholememory

#undef WHOLEMEMORY_HOST_DEVICE_

#endif  // WHOLEMEMORY_DEVICE_REFERENCE_CUH_
