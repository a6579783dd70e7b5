// Compiled once per SIMD target by foreach_target.h, which includes this file again; the part that
// does not depend on the target comes last.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/copy.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"
#include "core/kernel/pages.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct PastCaches {
  template <class D>
  static void store(hn::Vec<D> values, D d, uint8_t* to) {
    hn::Stream(values, d, to);
  }
};
struct Plainly {
  template <class D>
  static void store(hn::Vec<D> values, D d, uint8_t* to) {
    hn::Store(values, d, to);
  }
};

/// Requires `to` aligned to a vector. Returns the number of bytes copied: whole cache lines.
template <class Stores>
size_t copy_lines(uint8_t* to, const uint8_t* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t step = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * step <= bytes; at += 4 * step) {
    const auto first = hn::LoadU(d, from + at);
    const auto second = hn::LoadU(d, from + at + step);
    const auto third = hn::LoadU(d, from + at + 2 * step);
    const auto fourth = hn::LoadU(d, from + at + 3 * step);
    Stores::store(first, d, to + at);
    Stores::store(second, d, to + at + step);
    Stores::store(third, d, to + at + 2 * step);
    Stores::store(fourth, d, to + at + 3 * step);
  }
  return at;
}

/// Returns the number of bytes from `to` to the next cache line.
size_t bytes_to_line(const void* to, size_t bytes) {
  const size_t beyond_line = reinterpret_cast<uintptr_t>(to) % kCacheLine;
  return std::min(bytes, (kCacheLine - beyond_line) % kCacheLine);
}

template <class Stores>
void copy_by(void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  const size_t head = bytes_to_line(to, bytes);
  std::memcpy(to, from, head);
  const size_t done = head + copy_lines<Stores>(to + head, from + head, bytes - head);
  std::memcpy(to + done, from + done, bytes - done);
}

/// Copies all complete rows of pages (pages.h), starting at the first whole cache line of the
/// target. Returns the number of bytes copied.
size_t copy_by_pages_on_target(void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  const hn::ScalableTag<uint8_t> d;
  const size_t step = hn::Lanes(d);
  constexpr size_t row = kPagesAtOnce * kPageBytes;
  if (bytes < row || !goes_by_pages(step)) return 0;
  size_t done = bytes_to_line(to, bytes);
  std::memcpy(to, from, done);
  for (; done + row <= bytes; done += row) {
    for (size_t i = done; i < done + kPageBytes; i += step) {
      hn::Vec<decltype(d)> lines[kPagesAtOnce];
      for (size_t k = 0; k < kPagesAtOnce; ++k) lines[k] = hn::LoadU(d, from + i + k * kPageBytes);
      for (size_t k = 0; k < kPagesAtOnce; ++k) hn::Store(lines[k], d, to + i + k * kPageBytes);
    }
  }
  return done;
}

void copy_plainly_on_target(void* destination, const void* source, size_t bytes) {
  copy_by<Plainly>(destination, source, bytes);
}

void copy_past_caches_on_target(void* destination, const void* source, size_t bytes) {
  copy_by<PastCaches>(destination, source, bytes);
  hwy::FlushStream();  // non-temporal stores are not ordered
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(copy_by_pages_on_target);
HWY_EXPORT(copy_plainly_on_target);
HWY_EXPORT(copy_past_caches_on_target);

// If the target is 1 to 31 bytes behind the source modulo the page size, `rep movsb` on a Zen 3 is
// about 20 times slower, presumably because of false dependencies of loads on earlier stores. The C
// library uses it from 2 or 4 KiB on, depending on its vector width.
constexpr size_t kLeastByString = 2 * KiB;

bool seems_to_overlap(const void* destination, const void* source) {
  const auto behind =
      reinterpret_cast<uintptr_t>(destination) - reinterpret_cast<uintptr_t>(source);
  return behind % kPageBytes != 0 && behind % kPageBytes < kCacheLine / 2;
}

}  // namespace

void copy(void* destination, const void* source, size_t bytes) {
  if (bytes >= kLeastByString && seems_to_overlap(destination, source))
    HWY_DYNAMIC_DISPATCH(copy_plainly_on_target)(destination, source, bytes);
  else if (bytes > 0)
    std::memcpy(destination, source, bytes);
}

void copy_from_peer(void* destination, const void* source, size_t bytes) {
  const size_t done = HWY_DYNAMIC_DISPATCH(copy_by_pages_on_target)(destination, source, bytes);
  copy(static_cast<std::byte*>(destination) + done, static_cast<const std::byte*>(source) + done,
       bytes - done);
}

void copy_past_caches(void* destination, const void* source, size_t bytes) {
  if (bytes > 0) HWY_DYNAMIC_DISPATCH(copy_past_caches_on_target)(destination, source, bytes);
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
