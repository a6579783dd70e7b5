// Reduces the memory of several ranks on a GPU, by one kernel.
#pragma once

#include <array>
#include <span>

#include "core/base/dtype.h"
#include "core/device/kernels/sources.h"
#include "core/device/module.h"

namespace hvd::device {

inline constexpr size_t kReduceKernels = 8;

/// Whether there is a kernel for the type.
bool has_reduce_kernel(DType dtype);

/// The kernels of one GPU. Made on any thread; launched with the context current. For CUDA, as
/// CopyKernels.
class ReduceKernels {
 public:
  /// Compiles the kernels for the GPU, unless the driver has them in its cache. Throws
  /// Error{internal}.
  explicit ReduceKernels(const PrimaryContext& context);

  struct Task {
    DType dtype = DType::float32;
    Merge merge = Merge::sum;
    /// Integers are not scaled.
    ReduceScaling scaling{1, 1, 1};
    std::span<const DevicePointer> from{};  ///< 1 to kMaxSources
    DevicePointer to = 0;
    size_t count = 0;  ///< elements
  };
  /// Queues the reduction of `task`, in the order of its sources, so the result is the same on
  /// every rank. Requires has_reduce_kernel(). Addresses are multiples of 16.
  void launch(const Task& task, StreamHandle stream) const;

 private:
  Module module_;
  std::array<Kernel, kReduceKernels> kernels_;
};

}  // namespace hvd::device
