// Memory of measurements. Aligned to pages: if the target of a copy is a few bytes behind the
// source within their pages, the copy takes many times as long (docs/decisions/0026).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace bench {

/// Zero-initialized memory, all pages of which are resident.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_)));
    clear();
  }

  std::byte* data() const { return data_.get(); }
  void clear() const { std::memset(data_.get(), 0, bytes_); }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace bench
