#include "core/capi/backend_factory.h"

#include <algorithm>
#include <memory>

#include "core/backend/host/host_backend.h"
#include "core/backend/mpi/mpi_backend.h"
#include "core/blocking/small_batches.h"

namespace hvd {
namespace {

std::string value_of(const Environment& environment, std::string_view variable) {
  const auto found = environment.find(variable);
  return found == environment.end() ? "" : found->second;
}

/// Tensors of one batch may exceed a small fusion threshold.
constexpr size_t kLeastScratchBytes = 4 * MiB;

}  // namespace

nccl::NcclOptions gpu_options(const Environment& environment, const Knobs& knobs,
                              const Identity& identity, const std::string& nccl_of_python) {
  return {.choice = knobs.gpu_operations,
          .encrypt = knobs.encrypt,
          .async_completion = knobs.async_completion,
          .connect_timeout = knobs.start_timeout,
          .places = {.by_knob = knobs.nccl_library, .of_python = nccl_of_python},
          .host = identity.hostname,
          .visible = value_of(environment, "CUDA_VISIBLE_DEVICES"),
          .may_share = value_of(environment, "NCCL_MULTI_RANK_GPU_ENABLE") == "1",
          .slow_after = knobs.stall_check_disable ? std::chrono::seconds(0) : knobs.stall_check,
          .peer_timeout = knobs.peer_timeout,
          .exits_if_stuck = knobs.elastic,
          .allreduce_in_levels = host_rules(knobs).allreduce_in_levels,
          .deterministic = knobs.deterministic,
          .scratch_bytes = std::max(static_cast<size_t>(knobs.fusion_bytes), kLeastScratchBytes)};
}

BackendFactory::BackendFactory(const Environment& environment, const Knobs& knobs,
                               const Identity& identity, const std::string& nccl_of_python)
    : knobs_(knobs), gpus_(gpu_options(environment, knobs, identity, nccl_of_python)) {
  if (knobs.cpu_operations == CpuOperationsChoice::mpi)
    mpi_ = mpi::start_mpi(environment, knobs, identity);
}

Backends BackendFactory::make(const JobFacts& job) const {
  Backends backends = host_memory(job);
  backends.add(DeviceKind::cuda, std::make_unique<nccl::NcclBackend>(gpus_, backends.host()));
  return backends;
}

Backends BackendFactory::host_memory(const JobFacts& job) const {
  if (!mpi_) return Backends(host_backend(knobs_, job.spare_cores));
  auto carrier = mpi::carrier_of_job(*mpi_, job.identity, job.store, job.generation, knobs_);
  return Backends(std::make_unique<mpi::MpiBackend>(host_rules(knobs_), std::move(carrier)));
}

}  // namespace hvd
