#include "core/collective/gather_list.h"

namespace hvd {

void GatherList::add(std::byte* data, size_t bytes) {
  HVD_ASSERT(data != nullptr || bytes == 0);
  append(data, bytes);
}

void GatherList::add_absent(size_t bytes) { append(nullptr, bytes); }

void GatherList::append(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  data_.push_back(data);
  ends_.push_back(this->bytes() + bytes);
}

size_t GatherList::index_of(size_t offset) const {
  return static_cast<size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
}

}  // namespace hvd
