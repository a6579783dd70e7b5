// The parameters of the kernels in copy_scale.cu. Plain types: the file is also compiled for GPUs,
// without any library.
#pragma once

namespace hvd::device {

/// A contiguous range of elements to copy.
struct Piece {
  const void* from;
  void* to;
  unsigned long long count;  ///< elements; bytes for hvd_copy
};

/// Together with the scaling, less than 4 KB: the limit of kernel parameters.
inline constexpr unsigned kMaxPieces = 160;
struct Pieces {
  Piece piece[kMaxPieces];
};

/// Every element is divided, then multiplied.
struct FloatScaling {
  float divisor;
  float factor;
};
struct DoubleScaling {
  double divisor;
  double factor;
};

}  // namespace hvd::device
