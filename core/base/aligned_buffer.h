// Uninitialized memory for tensors, aligned to a cache line.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "core/base/bytes.h"

namespace hvd {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  /// Throws std::bad_alloc if the allocation fails.
  explicit AlignedBuffer(size_t bytes)
      : data_(static_cast<std::byte*>(operator new (bytes, std::align_val_t{kAlignment}))),
        bytes_(bytes) {}

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

  /// Releases ownership. The caller frees the memory with free_released().
  std::byte* release() {
    bytes_ = 0;
    return data_.release();
  }
  static void free_released(std::byte* data) { Delete()(data); }

 private:
  struct Delete {
    void operator()(std::byte* data) const { operator delete (data, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Delete> data_;
  size_t bytes_ = 0;
};

}  // namespace hvd
