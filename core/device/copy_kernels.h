// Batched copies on a GPU: many tensors are packed into a buffer, or unpacked, by one kernel, which
// also scales and converts.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core/base/dtype.h"
#include "core/device/kernels/pieces.h"
#include "core/device/module.h"

namespace hvd::device {

/// What happens to every element.
enum class CopyKind : unsigned char {
  bytes,  ///< nothing; pieces are counted in bytes
  float32,
  float64,
  float16,
  bfloat16,
  float32_to_float16,
  float32_to_bfloat16,
  float16_to_float32,
  bfloat16_to_float32,
};
inline constexpr size_t kCopyKinds = 9;

/// Like kernel::Scaling of host memory: division, then multiplication.
struct CopyScaling {
  double divisor = 1;
  double factor = 1;
};

/// Returns the kind for a copy from one type to another; nullopt if no kernel converts or scales
/// it. Without conversion and scaling, every type is copied as bytes.
std::optional<CopyKind> copy_kind(DType from, DType to, const CopyScaling& scaling);

/// The kernels of one GPU. Made on any thread; launched with the context current. For CUDA: there
/// is no code for ROCm yet, so the constructor fails there.
class CopyKernels {
 public:
  /// Compiles the kernels for the GPU, unless the driver has them in its cache. Throws
  /// Error{internal}.
  explicit CopyKernels(const PrimaryContext& context);

  /// Queues the copies of all pieces: one kernel per kMaxPieces pieces of up to 1 MiB. Sources and
  /// destinations must not overlap, except that a scaled piece may be in place. Fastest if both
  /// addresses of a piece are multiples of 16.
  void launch(CopyKind kind, std::span<const Piece> pieces, const CopyScaling& scaling,
              StreamHandle stream) const;

 private:
  void launch_once(CopyKind kind, const Pieces& pieces, unsigned count, unsigned long long longest,
                   const CopyScaling& scaling, StreamHandle stream) const;

  Module module_;
  std::array<Kernel, kCopyKinds> kernels_;
};

}  // namespace hvd::device
