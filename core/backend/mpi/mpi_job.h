// A job whose tensors MPI moves: MPI is begun before the ranks meet, and gets a communicator of
// them when they have met.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"
#include "core/transport/store.h"

namespace hvd::mpi {

/// MPI as it runs in this process.
struct Running {
  const Table* table = nullptr;
  Facts facts{};
};

/// Begins MPI, or joins the one that the program has begun; blocks until all ranks of the launcher
/// do. `knobs` and `identity` are those of the job. Throws Error{invalid_argument} where that is
/// not possible, Error{internal} where MPI fails.
Running start_mpi(const Environment& environment, const Knobs& knobs, const Identity& identity);

/// Collective over all ranks of the job; blocks. `store` is used where the launcher does not say
/// what MPI calls the ranks. Throws Error{timed_out}, Error{internal}.
std::unique_ptr<MpiCarrier> carrier_of_job(const Running& mpi, const Identity& identity,
                                           Store* store, uint32_t generation, const Knobs& knobs);

}  // namespace hvd::mpi
