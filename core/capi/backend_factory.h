// Makes the backends of a job. The only place that depends on all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/backend/backends.h"
#include "core/backend/mpi/mpi_job.h"
#include "core/backend/nccl/nccl_backend.h"
#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/transport/store.h"

namespace hvd {

/// A job after the rendezvous of its ranks.
struct JobFacts {
  const Identity& identity;
  Store* store = nullptr;  ///< of this job; nullptr if there is none
  uint32_t generation = 0;
  bool spare_cores = false;  ///< every rank of this host has its own core
};

/// `nccl_of_python`: see device::NcclPlaces.
nccl::NcclOptions gpu_options(const Environment& environment, const Knobs& knobs,
                              const Identity& identity, const std::string& nccl_of_python);

/// Used only during the construction of a Context.
class BackendFactory {
 public:
  /// Must be constructed before the rendezvous, which may use the PMIx of a running MPI
  /// (docs/decisions/0023). If MPI moves the tensors, blocks until all ranks have initialized it.
  /// Throws the errors of mpi::start_mpi().
  BackendFactory(const Environment& environment, const Knobs& knobs, const Identity& identity,
                 const std::string& nccl_of_python);

  /// Makes the backends. Collective over all ranks of the job; may block. Throws the errors of
  /// mpi::carrier_of_job().
  Backends make(const JobFacts& job) const;

 private:
  Backends host_memory(const JobFacts& job) const;

  const Knobs& knobs_;
  const nccl::NcclOptions gpus_;
  std::optional<mpi::Running> mpi_;
};

}  // namespace hvd
