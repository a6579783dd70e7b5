// What identifies a GPU: for the comparison of ranks at init, for reports, and for messages.
#pragma once

#include <string>
#include <vector>

#include "core/device/driver.h"

namespace hvd::device {

/// A GPU as this process sees it. A value.
struct GpuInfo {
  int index = 0;  ///< in this process; CUDA_VISIBLE_DEVICES changes it
  std::string name;
  std::string uuid;    ///< "GPU-" and 32 hexadecimal digits in groups, as nvidia-smi prints it
  std::string bus_id;  ///< "0000:01:00.0"
  /// Major and minor of the compute capability; 0 on ROCm.
  int capability_major = 0;
  int capability_minor = 0;
};

/// Describes the GPU with this index, which must exist. Retains no context and takes no memory of
/// the GPU. Throws Error{internal}.
GpuInfo gpu_info(const Driver& driver, int index);

/// For each GPU the indices of those whose memory it can access directly (P2P).
std::vector<std::vector<int>> peer_access(const Driver& driver);

}  // namespace hvd::device
