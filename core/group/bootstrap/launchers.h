// One function, in a file of its own, for each launcher whose traces in the environment we can
// read. All of them return nothing when this launcher did not start us, and throw
// Error{invalid_argument} where it says half of what is needed, or nonsense.
#pragma once

#include <optional>
#include <string>

#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {

/// Also whoever sets the variables of horovodrun by hand.
std::optional<Identity> from_horovodrun(const Environment& environment);
/// Hydra: mpirun of MPICH and Intel MPI; and Slurm's pmi2, which speaks the same.
std::optional<Identity> from_pmi(const Environment& environment);
/// Open MPI, and what is made of it.
std::optional<Identity> from_open_mpi(const Environment& environment);
/// LSF's jsrun.
std::optional<Identity> from_jsrun(const Environment& environment);
/// torchrun, python -m torch.distributed.launch, and operators that set the same variables.
std::optional<Identity> from_torchrun(const Environment& environment);
/// A task of srun, whatever --mpi says.
std::optional<Identity> from_slurm(const Environment& environment);

/// Last of all: the variables of PMI without its connection. Throws, since it cannot be a job.
std::optional<Identity> from_closed_pmi(const Environment& environment);

/// What those below horovodrun begin with: launchers that tell a rank's place in the job, maybe
/// that on its host, and never that among hosts.
Identity identity_at(std::string launcher, Place world, std::optional<Place> local);

}  // namespace hvd
