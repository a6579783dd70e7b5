// Page-interleaved loops for memory that another core has stored last. Hardware prefetchers stop at
// the end of a page. A loop that processes several pages in parallel always has one stream with an
// active prefetcher.
//
// Faster on Xeons, slower on a Zen 5 (docs/decisions/0027).
#pragma once

#include "core/base/bytes.h"

namespace hvd::kernel {

inline constexpr size_t kPageBytes = 4 * KiB;
inline constexpr size_t kPagesAtOnce = 4;

/// Returns whether loops with vectors of this size interleave pages: true on Intel CPUs if a vector
/// fills a cache line. Always true in sanitizer builds, so that tests cover these loops on every
/// CPU. The build selects pages_x86.cc, pages_always.cc or pages_never.cc.
bool goes_by_pages(size_t vector_bytes);

}  // namespace hvd::kernel
