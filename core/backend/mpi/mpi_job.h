// Starts MPI for a job whose tensors MPI moves: before the rendezvous of the ranks. The
// communicator of the job is made after it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/transport/store.h"

namespace hvd::mpi {

/// The MPI that is initialized in this process.
struct Running {
  const Table* table = nullptr;
  Facts facts{};
};

/// Initializes MPI, or uses the MPI that the program has initialized. Blocks until all ranks of the
/// launcher have called it. Throws Error{invalid_argument} if MPI cannot be used, Error{internal}
/// if it fails.
Running start_mpi(const Environment& environment, const Knobs& knobs, const Identity& identity);

/// Makes the MpiCarrier with the communicator of all ranks. Collective over all ranks of the job;
/// blocks. `store` is used to exchange MPI ranks if the launcher's ranks may differ from them.
/// Throws Error{timed_out}, Error{internal}.
std::unique_ptr<MpiCarrier> carrier_of_job(const Running& mpi, const Identity& identity,
                                           Store* store, uint32_t generation, const Knobs& knobs);

}  // namespace hvd::mpi
