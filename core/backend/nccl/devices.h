// Loads the driver and NCCL at the first GPU tensor of the process, and keeps its GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "core/backend/nccl/gpu.h"
#include "core/base/bytes.h"
#include "core/base/knobs.h"
#include "core/device/nccl.h"

namespace hvd::nccl {

/// Memory that is allocated with the GPU, see Gpu::reserve_scratch(). Without NCCL, pinned memory
/// always is.
struct Reserved {
  size_t scratch_bytes = 0;  ///< if NCCL is used; at most kMostScratchBytes are reserved
  bool pinned = false;       ///< also if NCCL is used

  static constexpr size_t kMostScratchBytes = 128 * MiB;
};

/// Any thread may call any function.
class Devices {
 public:
  /// `choice`: host does not load NCCL; nccl makes its absence an error.
  Devices(device::NcclPlaces places, GpuOperationsChoice choice, const Reserved& reserved = {})
      : places_(std::move(places)), choice_(choice), reserved_(reserved) {}

  /// Returns the GPU `index`, which is then the one of this process. Loads the libraries at the
  /// first call; may block for seconds then. Throws Error{invalid_argument}: what is missing and
  /// the remedy, that this process uses another GPU already, or that it cannot use it any more.
  std::shared_ptr<Gpu> use(int index);
  /// The GPU of this process; nullptr: there was no GPU tensor yet.
  std::shared_ptr<Gpu> gpu() const;
  /// nullptr: tensors go through host memory, since NCCL was not found or not chosen.
  std::shared_ptr<const device::Nccl> nccl() const;

 private:
  void load_nccl();

  const device::NcclPlaces places_;
  const GpuOperationsChoice choice_;
  const Reserved reserved_;
  mutable std::mutex mutex_;  ///< guards the following
  std::shared_ptr<const device::Driver> driver_;
  std::shared_ptr<const device::Nccl> nccl_;
  std::shared_ptr<Gpu> gpu_;
};

}  // namespace hvd::nccl
