#include "core/collective/gather_list.h"

namespace hvd {

void GatherList::add(std::byte* data, size_t bytes) {
  HVD_ASSERT(data != nullptr || bytes == 0);
  append(data, bytes);
}

void GatherList::add_absent(size_t bytes) { append(nullptr, bytes); }

void GatherList::add(const GatherList& other) {
  for (size_t i = 0; i < other.data_.size(); ++i)
    append(other.data_[i], other.ends_[i] - (i == 0 ? 0 : other.ends_[i - 1]));
}

GatherList GatherList::part(size_t offset, size_t bytes) const {
  GatherList list;
  for_each(offset, bytes,
           [&](MutableBytes piece, size_t) { list.add(piece.data(), piece.size()); });
  return list;
}

std::byte* GatherList::in_one_piece(size_t offset, size_t bytes) const {
  const size_t i = index_of(offset);
  HVD_ASSERT(data_[i] != nullptr);
  const size_t start = i == 0 ? 0 : ends_[i - 1];
  return offset + bytes <= ends_[i] ? data_[i] + (offset - start) : nullptr;
}

size_t GatherList::bytes_present() const {
  size_t present = 0;
  for (size_t i = 0; i < data_.size(); ++i)
    if (data_[i] != nullptr) present += ends_[i] - (i == 0 ? 0 : ends_[i - 1]);
  return present;
}

void GatherList::append(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  if (data == nullptr && !data_.empty() && data_.back() == nullptr) {
    ends_.back() += bytes;
    return;
  }
  data_.push_back(data);
  ends_.push_back(this->bytes() + bytes);
}

size_t GatherList::index_of(size_t offset) const {
  return static_cast<size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
}

}  // namespace hvd
