// How loops go through memory that another core has stored last, where that pays. Prefetchers stop
// at the end of a page and start anew in the next, so such a loop goes through several pages side
// by side: one of its streams is always well under way.
//
// Measured between two cores. A Xeon with AMX: reading at 17.3 GB/s in one stream, 20.7 in
// two, 21.3 in four, 21.8 in eight (128 KiB at a time); an allreduce of 256 KiB takes 22.2 us
// instead of 24.6. Where nobody else has stored it is the same: 5.5 us to add 256 KiB. A Zen 5 is
// slower so: a broadcast of 256 KiB takes 6.5 us instead of 5.3, an alltoall of 4 MiB 143 instead
// of 123, an allreduce of 4 MiB 147 instead of 139.
#pragma once

#include "core/base/bytes.h"

namespace hvd::kernel {

inline constexpr size_t kPageBytes = 4 * KiB;
inline constexpr size_t kPagesAtOnce = 4;

/// Whether a loop does, whose vectors have so many bytes: on CPUs by Intel, from a cache line on.
/// In a build for sanitizers, always, so that tests reach such loops on every CPU, if with shorter
/// vectors. The build picks pages_x86.cc, pages_always.cc or
/// pages_never.cc.
bool goes_by_pages(size_t vector_bytes);

}  // namespace hvd::kernel
