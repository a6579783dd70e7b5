#include "core/device/messages.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace hvd::device {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallShm = 512 * kMiB;  ///< NCCL may need more than this in /dev/shm

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string driver_phrase(int version) {
  return version > 0 ? "the driver supports CUDA " + cuda_version(version)
                     : "the version of the driver is not known";
}

/// The oldest drivers for the packages of NCCL.
constexpr const char* kDriversForNccl =
    "NCCL for CUDA 12 needs driver 525 or later, NCCL for CUDA 13 needs driver 580 or later";

constexpr const char* kFreeTheCache =
    "free the cache of the framework (torch.cuda.empty_cache(); TensorFlow: set_memory_growth)";

std::string remedy_of_init(Result result) {
  switch (result) {
    case kNotInitialized:
      return "this process was forked from one that had used the GPU: start processes with the "
             "method spawn or forkserver, or before the first GPU tensor";
    case kNoDevice:
      return "no GPU is visible to this process: check nvidia-smi, CUDA_VISIBLE_DEVICES, and that "
             "the container or the job was given GPUs (docker run --gpus all)";
    case kStubLibrary:
      return "this is the stub library of the CUDA toolkit, made only for linking: remove its "
             "directory from LD_LIBRARY_PATH";
    case kInsufficientDriver:
    case kDriverTooOldForDevice:
      return "install a newer driver";
    case kDriverMismatch:
      return "the library and the kernel module of the driver have different versions: reboot "
             "after an update of the driver, or start the container again";
    default:
      return "check nvidia-smi and the kernel log";
  }
}

/// NCCL allocates memory beside the framework, whose cache may have all of it.
std::string memory_phrase(const NcclFailure& failure) {
  const std::string found =
      failure.gpu_total_bytes == 0
          ? "If the GPU has no memory left"
          : fmt::format("{} of {} MiB of the GPU are free: if that is too little",
                        failure.gpu_free_bytes / kMiB, failure.gpu_total_bytes / kMiB);
  return found + ", " + kFreeTheCache;
}

std::string remedy_of_nccl(const NcclFailure& failure) {
  switch (failure.result) {
    case NcclResult::unhandled_cuda_error:
      return fmt::format("{}; {}. {}", driver_phrase(failure.driver_version), kDriversForNccl,
                         memory_phrase(failure));
    case NcclResult::system_error:
      if (failure.shm_free_bytes < kSmallShm)
        return fmt::format(
            "/dev/shm has {} MiB left, NCCL may need more: start the container with "
            "--shm-size=1g --ulimit memlock=-1",
            failure.shm_free_bytes / kMiB);
      return "check the network interfaces (NCCL_SOCKET_IFNAME), and start containers with "
             "--ulimit memlock=-1 and, since NCCL 2.24, --cap-add SYS_NICE";
    case NcclResult::remote_error:
      return "another rank has failed; look for the first error in the output of the other ranks";
    default:
      return "NCCL_DEBUG=WARN prints more";
  }
}

std::string way_text(Mover mover) {
  switch (mover) {
    case Mover::nccl:
      return "by NCCL";
    case Mover::hierarchical:
      return "by NCCL within each host";
    case Mover::ipc:
      return "through shared GPU memory";
    default:
      return "through host memory";
  }
}

/// Parts of one GPU (MIG) have UUIDs of their own; containers on one host have names of their own.
bool are_same(const RankGpu& one, const RankGpu& other) {
  const auto known = [](const std::string& x, const std::string& y) {
    return !x.empty() && x == y;
  };
  return known(one.uuid, other.uuid) || (one.host == other.host && known(one.bus_id, other.bus_id));
}

}  // namespace

std::string no_driver_text(DeviceKind kind, const std::vector<std::string>& reasons) {
  const char* const options =
      kind == DeviceKind::rocm ? "--device=/dev/kfd --device=/dev/dri" : "--gpus all";
  return fmt::format(
      "this process has a tensor in {}, but the library of the driver cannot be loaded ({}): "
      "install the driver; in a container, give it the GPUs (docker run {})",
      name_of(kind), fmt::join(reasons, "; "), options);
}

std::string old_driver_text(const std::string& path, int version,
                            const std::vector<std::string>& missing) {
  return fmt::format("the GPU driver {} is too old: it lacks {} ({}): install a newer driver", path,
                     fmt::join(missing, ", "), driver_phrase(version));
}

std::string failed_init_text(const FailedInit& failed) {
  return fmt::format("the GPU driver {} cannot be initialized, {} ({}): {}", failed.path,
                     failed.text, driver_phrase(failed.version), remedy_of_init(failed.result));
}

std::string forked_text(pid_t parent) {
  return fmt::format(
      "GPU tensors cannot be used in this process: it was forked from process {} after that had "
      "used a GPU. Start processes with the method spawn or forkserver, or before the first GPU "
      "tensor",
      parent);
}

std::string no_such_gpu_text(Ordinal wanted, int gpu_count) {
  return fmt::format(
      "GPU {} does not exist in this process, which sees {} GPU{} (0 to {}). If the job system "
      "gives each process one GPU (CUDA_VISIBLE_DEVICES, --gpus-per-task=1), use GPU 0 in each "
      "instead of local_rank()",
      wanted, gpu_count, gpu_count == 1 ? "" : "s", gpu_count - 1);
}

std::string out_of_memory_text(const OutOfMemory& facts) {
  return fmt::format(
      "{} MiB of {} cannot be allocated for GPU {}: {} of {} MiB of the GPU are free. Either {}, "
      "use smaller batches, or a smaller HOROVOD_FUSION_THRESHOLD",
      (facts.wanted_bytes + kMiB - 1) / kMiB, facts.kind, facts.gpu, facts.free_bytes / kMiB,
      facts.total_bytes / kMiB, kFreeTheCache);
}

std::string no_pinned_memory_text(size_t wanted_bytes, size_t limit_bytes,
                                  const std::string& reason) {
  const std::string limit =
      limit_bytes == SIZE_MAX ? "unlimited" : fmt::format("{} KiB", limit_bytes / 1024);
  return fmt::format(
      "{} KiB of host memory cannot be pinned for the GPU, {}: the limit of locked memory is {} "
      "(ulimit -l); in a container, use --ulimit memlock=-1",
      wanted_bytes / 1024, reason, limit);
}

std::string shared_gpu_text(const std::vector<RankGpu>& ranks) {
  for (const RankGpu& first : ranks) {
    std::vector<std::string> named;
    bool are_instances = false;
    for (const RankGpu& one : ranks) {
      if (!are_same(first, one)) continue;
      are_instances |= first.uuid != one.uuid;
      named.push_back(fmt::format("rank {} (CUDA_VISIBLE_DEVICES {})", one.rank,
                                  one.visible.empty() ? "not set" : "=" + one.visible));
    }
    if (named.size() < 2) continue;
    if (are_instances)
      return fmt::format(
          "{} use instances (MIG) of one GPU of host {}, at {}: NCCL cannot connect them. Give "
          "each "
          "rank an instance of a GPU of its own, or set HOROVOD_GPU_OPERATIONS=host",
          fmt::join(named, " and "), first.host, first.bus_id);
    return fmt::format(
        "{} use the same GPU of host {}, {} at {}: NCCL needs a GPU for each rank. Select one per "
        "rank, for example torch.cuda.set_device(hvd.local_rank()), or set "
        "HOROVOD_GPU_OPERATIONS=host",
        fmt::join(named, " and "), first.host, first.uuid, first.bus_id);
  }
  return "";
}

std::string second_gpu_text(int wanted, int used) {
  return fmt::format(
      "a tensor is on GPU {}, but earlier tensors of this process were on GPU {}: all tensors of a "
      "process must be on one GPU. Select it before the first tensor, for example "
      "torch.cuda.set_device(hvd.local_rank())",
      wanted, used);
}

std::string different_nccl_text(const std::vector<RankNccl>& ranks) {
  const auto text_of = [](const RankNccl& one) {
    return one.version == 0 ? "no NCCL" : "NCCL " + nccl_version_text(one.version);
  };
  for (const RankNccl& one : ranks) {
    const RankNccl& first = ranks.front();
    if (one.version == first.version) continue;
    return fmt::format(
        "rank {} has {}, but rank {} has {}: all ranks need the same version. Install the same "
        "packages on all hosts, name one file in HOROVOD_NCCL_LIBRARY, or set "
        "HOROVOD_GPU_OPERATIONS=host",
        first.rank, text_of(first), one.rank, text_of(one));
  }
  return "";
}

std::string slow_nccl_text(int ranks, std::chrono::nanoseconds deadline) {
  return fmt::format(
      "NCCL has not connected {} ranks within {} s (HOROVOD_START_TIMEOUT). Try "
      "NCCL_P2P_DISABLE=1; "
      "if that helps, disable ACS in the PCIe bridges. Between hosts, set NCCL_SOCKET_IFNAME to "
      "the "
      "interface that reaches them. NCCL_DEBUG=INFO prints what it waits for",
      ranks, std::chrono::duration_cast<std::chrono::seconds>(deadline).count());
}

std::string slow_gpu_text(const SlowBatch& batch) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(batch.duration).count();
  const std::string described =
      fmt::format("batch {}, {} of {} tensors of the ranks {}, {}", batch.number, batch.operation,
                  batch.tensors, fmt::join(batch.ranks, ", "), way_text(batch.mover));
  if (batch.waits_for_ranks)
    return fmt::format(
        "{}, has waited for {} s for data of other {}. Look for lines of other ranks about this "
        "batch: a rank whose GPU has worked on it holds up the others. One without a line has not "
        "begun it, or its GPU still computes",
        described, seconds, batch.mover == Mover::hierarchical ? "hosts" : "ranks");
  return fmt::format(
      "the GPU has worked for {} s on {}. Look for "
      "this line of the other ranks: one without it has not queued the batch, or its GPU still "
      "computes. If all have it and the GPUs are busy at 100 %, try NCCL_P2P_DISABLE=1; if that "
      "helps, disable ACS in the PCIe bridges, or the IOMMU",
      seconds, described);
}

std::string stuck_gpu_text(std::chrono::nanoseconds deadline) {
  return fmt::format(
      "NCCL or the driver has not ended the GPU work of this process within {} s: the GPU stays "
      "busy "
      "and the memory of the tensors in use. This process cannot use the GPU any more; end it and "
      "start a new one",
      std::chrono::duration_cast<std::chrono::seconds>(deadline).count());
}

std::string failed_ending_text(const std::string& failure) {
  return fmt::format(
      "the GPU work of this process could not be ended ({}): the GPU may stay busy and the memory "
      "of the tensors in use. This process cannot use the GPU any more; end it and start a new one",
      failure);
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string no_nccl_text(const std::vector<std::string>& reasons) {
  return fmt::format(
      "NCCL was not found ({}): install it (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for "
      "a framework with CUDA 13), or name its file in HOROVOD_NCCL_LIBRARY",
      fmt::join(reasons, "; "));
}

std::string bad_nccl_knob_text(const std::string& path, const std::string& reason) {
  return fmt::format(
      "HOROVOD_NCCL_LIBRARY={} cannot be loaded ({}): correct the path, or unset the variable to "
      "use the NCCL of the framework",
      path, reason);
}

std::string old_nccl_text(int version, const SharedLibrary& library) {
  return fmt::format(
      "NCCL {} ({}, {}) is too old: 2.16 or later is needed (pip install nvidia-nccl-cu12, or name "
      "another file in HOROVOD_NCCL_LIBRARY)",
      nccl_version_text(version), library.path(), name_of(library.origin()));
}

std::string incomplete_nccl_text(int version, const SharedLibrary& library,
                                 const std::vector<std::string>& missing) {
  return fmt::format("NCCL {} ({}, {}) lacks {}: it is not a complete libnccl.so.2",
                     nccl_version_text(version), library.path(), name_of(library.origin()),
                     fmt::join(missing, ", "));
}

std::string second_nccl_text(const std::string& used, const std::vector<std::string>& others) {
  return fmt::format("nccl uses={} also_loaded={}: this process has several NCCL libraries", used,
                     fmt::join(others, ","));
}

std::string nccl_failure_text(const NcclFailure& failure) {
  const std::string last =
      failure.last_error.empty() ? "" : fmt::format(" (its last message: {})", failure.last_error);
  return fmt::format("{}: NCCL {} failed with {}{}: {}", failure.doing,
                     nccl_version_text(failure.nccl_version), failure.text, last,
                     remedy_of_nccl(failure));
}

}  // namespace hvd::device
