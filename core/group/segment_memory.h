// Memory for a HostSegment in tests whose ranks are threads: zeroed and aligned to a page.
#pragma once

#include <algorithm>

#include "core/base/bytes.h"

namespace hvd {

class SegmentMemory {
 public:
  explicit SegmentMemory(size_t bytes)
      : bytes_(static_cast<std::byte*>(operator new(bytes, kPage)), bytes) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
  }
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;
  ~SegmentMemory() { operator delete(bytes_.data(), kPage); }

  MutableBytes bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kPage{4096};
  MutableBytes bytes_;
};

}  // namespace hvd
