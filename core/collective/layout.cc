#include "core/collective/layout.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/bytes.h"

namespace hvd {
namespace {

size_t divide_up(size_t value, size_t by) { return (value + by - 1) / by; }
size_t round_down(size_t value, size_t to) { return value / to * to; }

}  // namespace

Layout Layout::split(size_t bytes, size_t segment_bytes, int chunks, size_t element_bytes) {
  HVD_ASSERT(chunks > 0 && element_bytes > 0 && kCacheLine % element_bytes == 0);
  HVD_ASSERT(bytes % element_bytes == 0 && segment_bytes >= element_bytes);
  Layout layout;
  layout.bytes_ = bytes;
  layout.chunks_ = chunks;
  layout.element_bytes_ = element_bytes;
  if (bytes == 0) return layout;
  // Segments of nearly equal length: a short last segment would leave nothing to overlap.
  const size_t align = segment_bytes >= kCacheLine ? kCacheLine : element_bytes;
  const size_t count = divide_up(bytes, round_down(segment_bytes, align));
  layout.step_ = divide_up(divide_up(bytes, count), align) * align;
  layout.segments_ = divide_up(bytes, layout.step_);
  return layout;
}

Layout Layout::blocks(const std::vector<size_t>& block_bytes, size_t segment_bytes, int room_chunks,
                      size_t element_bytes) {
  HVD_ASSERT(!block_bytes.empty() && room_chunks > 0);
  HVD_ASSERT(element_bytes > 0 && kCacheLine % element_bytes == 0);
  Layout layout;
  layout.chunks_ = static_cast<int>(block_bytes.size());
  layout.element_bytes_ = element_bytes;
  const size_t share = segment_bytes / static_cast<size_t>(room_chunks);
  layout.step_ = round_down(share, share >= kCacheLine ? kCacheLine : element_bytes);
  HVD_ASSERT(layout.step_ > 0);
  layout.block_starts_.push_back(0);
  for (const size_t block : block_bytes) {
    HVD_ASSERT(block % element_bytes == 0);
    layout.block_starts_.push_back(layout.block_starts_.back() + block);
  }
  layout.bytes_ = layout.block_starts_.back();
  const auto [shortest, longest] = std::ranges::minmax(block_bytes);
  layout.segments_ = divide_up(longest, layout.step_);
  layout.full_segments_ = shortest / layout.step_;
  return layout;
}

size_t Layout::segments() const { return segments_; }
int Layout::chunks() const { return chunks_; }

Extent Layout::extent(size_t segment, int chunk) const {
  HVD_ASSERT(segment < segments_ && chunk >= 0 && chunk < chunks_);
  if (block_starts_.empty()) {
    const size_t begin = border(segment, chunk);
    return {segment * step_ + begin, border(segment, chunk + 1) - begin};
  }
  const size_t block = block_starts_[chunk + 1] - block_starts_[chunk];
  const size_t begin = std::min(segment * step_, block);
  return {block_starts_[chunk] + begin, std::min(step_, block - begin)};
}

size_t Layout::offset_in_unit(size_t segment, int base, int chunk) const {
  HVD_ASSERT(segment < segments_ && base >= 0 && base <= chunk && chunk <= chunks_);
  if (block_starts_.empty()) return border(segment, chunk) - border(segment, base);
  if (segment < full_segments_) return static_cast<size_t>(chunk - base) * step_;
  size_t offset = 0;
  for (int before = base; before < chunk; ++before) offset += extent(segment, before).bytes;
  return offset;
}

size_t Layout::segment_length(size_t segment) const {
  return std::min(step_, bytes_ - segment * step_);
}

size_t Layout::border(size_t segment, int chunk) const {
  const size_t length = segment_length(segment);
  const size_t parts = static_cast<size_t>(chunks_);
  const size_t align = length >= parts * kCacheLine ? kCacheLine : element_bytes_;
  const size_t cells = divide_up(length, align);
  return std::min(length, cells * static_cast<size_t>(chunk) / parts * align);
}

}  // namespace hvd
