// One function per launcher, each in a file of its own, that reads the identity of this process
// from the variables of that launcher. Each returns nothing if this launcher did not start the
// process, and throws Error{invalid_argument} if variables are missing or invalid.
#pragma once

#include <optional>
#include <string>

#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/bootstrap/variables.h"

namespace hvd {

/// horovodrun, and users who set its variables by hand.
std::optional<Identity> from_horovodrun(const Environment& environment);
/// Hydra (mpirun of MPICH and Intel MPI), and Slurm's pmi2, which speaks the same protocol.
std::optional<Identity> from_pmi(const Environment& environment);
/// Open MPI and its derivatives.
std::optional<Identity> from_open_mpi(const Environment& environment);
/// LSF's jsrun.
std::optional<Identity> from_jsrun(const Environment& environment);
/// torchrun, python -m torch.distributed.launch, and operators that set the same variables.
std::optional<Identity> from_torchrun(const Environment& environment);
/// A task of srun, with any --mpi.
std::optional<Identity> from_slurm(const Environment& environment);

/// Tried last: the variables of PMI, but without its connection. Throws for more than one rank.
std::optional<Identity> from_closed_pmi(const Environment& environment);

/// The common part of all launchers but horovodrun: they set rank and size, some the local ones,
/// and none the cross ones.
Identity identity_at(std::string launcher, RankAndSize world, std::optional<RankAndSize> local);

}  // namespace hvd
