// Arrays cut from one block of scratch memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace wmk {

class Scratch {
 public:
  // No address: only counts what would be taken.
  Scratch(uint64_t address, uint64_t bytes) : address_(address), bytes_(bytes) {}

  // Room for `count` values, aligned to 256 bytes where the block is.
  template <class T>
  T *take(uint64_t count) {
    const uint64_t at = address_ + taken_;
    taken_ += (count * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T *>(at);
  }

  bool counts_only() const { return address_ == 0; }
  bool suffices() const { return taken_ <= bytes_; }
  uint64_t taken_bytes() const { return taken_; }

 private:
  uint64_t address_;
  uint64_t bytes_;
  uint64_t taken_ = 0;
};

}  // namespace wmk
