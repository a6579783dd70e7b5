// The parameters of the kernels in reduce.cu. Plain types, as in pieces.h.
#pragma once

namespace hvd::device {

/// Ranks whose memory one kernel reduces. A host has fewer GPUs.
inline constexpr unsigned kMaxSources = 64;

enum class Merge : unsigned { sum, min, max, product };

/// Memory of the same length, every address a multiple of 16.
struct Sources {
  const void* from[kMaxSources];
  void* to;                  ///< one of the sources, or overlaps none
  unsigned long long count;  ///< elements of each
  unsigned sources;
  Merge merge;
};

/// Every element is multiplied before it is merged. The result is divided, then multiplied.
struct ReduceScaling {
  double before;
  double divisor;
  double after;
};

}  // namespace hvd::device
