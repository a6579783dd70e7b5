// The sentences about drivers, GPUs and NCCL that users get. Pure functions of facts, so that each
// can be tested without a device.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/operation.h"
#include "core/base/route.h"
#include "core/device/driver_api.h"
#include "core/device/nccl_api.h"
#include "core/device/shared_library.h"

namespace hvd::device {

// ---- the driver

/// The library of the driver was not found. `reasons`: of the dynamic loader.
std::string no_driver_text(DeviceKind kind, const std::vector<std::string>& reasons);
/// The driver lacks functions.
std::string old_driver_text(const std::string& path, int version,
                            const std::vector<std::string>& missing);
struct FailedInit {
  Result result = kSuccess;
  std::string text;  ///< of the driver
  int version = 0;   ///< of the driver; 0: unknown
  std::string path;
};
std::string failed_init_text(const FailedInit& failed);
/// A GPU tensor in a child of fork().
std::string forked_text(pid_t parent);

// ---- GPUs

/// A device number beyond the GPUs that this process sees.
std::string no_such_gpu_text(Ordinal wanted, int gpu_count);
struct OutOfMemory {
  const char* kind = "device memory";  ///< or "pinned host memory"
  size_t wanted_bytes = 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Ordinal gpu = 0;
};
std::string out_of_memory_text(const OutOfMemory& facts);
/// Locked memory could not be had. `limit_bytes`: RLIMIT_MEMLOCK.
std::string no_pinned_memory_text(size_t wanted_bytes, size_t limit_bytes,
                                  const std::string& reason);
/// A GPU of one rank, as ranks compare them when they meet.
struct RankGpu {
  int rank = 0;
  std::string host;
  std::string uuid;
  std::string bus_id;
  std::string visible;  ///< CUDA_VISIBLE_DEVICES; empty: not set
};
/// Ranks that share a GPU or are on instances (MIG) of one, with a remedy; empty if each rank has
/// its own.
std::string shared_gpu_text(const std::vector<RankGpu>& ranks);
/// A second GPU in a process.
std::string second_gpu_text(int wanted, int used);

// ---- NCCL

/// "2.27.5" for 22705.
std::string nccl_version_text(int version);
std::string no_nccl_text(const std::vector<std::string>& reasons);
/// A path that the user has set cannot be loaded.
std::string bad_nccl_knob_text(const std::string& path, const std::string& reason);
std::string old_nccl_text(int version, const SharedLibrary& library);
std::string incomplete_nccl_text(int version, const SharedLibrary& library,
                                 const std::vector<std::string>& missing);
/// Several files of NCCL are loaded; `used` is the one in use.
std::string second_nccl_text(const std::string& used, const std::vector<std::string>& others);

/// The NCCL of one rank, as ranks compare them when they meet.
struct RankNccl {
  int rank = 0;
  int version = 0;  ///< 0: it has none
};
/// Ranks with different versions, or some without NCCL; empty if all are equal.
std::string different_nccl_text(const std::vector<RankNccl>& ranks);
/// A communicator was not connected in time.
std::string slow_nccl_text(int ranks, std::chrono::nanoseconds deadline);

/// A batch that has made no progress for `duration`.
struct SlowBatch {
  std::chrono::nanoseconds duration{};
  Mover mover = Mover::nccl;
  bool waits_for_ranks = false;  ///< for data of other ranks; otherwise for the GPU
  uint64_t number = 0;           ///< the same on all ranks
  std::string operation{};
  size_t tensors = 0;
  std::vector<int> ranks{};
};
std::string slow_gpu_text(const SlowBatch& batch);

/// GPU work was not ended in time, after a loss or at the end of a job.
std::string stuck_gpu_text(std::chrono::nanoseconds deadline);
/// The end of GPU work has failed.
std::string failed_ending_text(const std::string& failure);

struct NcclFailure {
  std::string doing;
  NcclResult result = NcclResult::success;
  std::string text;          ///< ncclGetErrorString
  std::string last_error{};  ///< ncclGetLastError; may be of an earlier call
  int nccl_version = 0;
  int driver_version = 0;
  size_t shm_free_bytes = 0;  ///< of /dev/shm
  /// Of the GPU. total_bytes is 0 if they are not known.
  size_t gpu_free_bytes = 0, gpu_total_bytes = 0;
};
/// What NCCL said, and the most likely remedy.
std::string nccl_failure_text(const NcclFailure& failure);

}  // namespace hvd::device
