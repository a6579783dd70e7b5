// Open MPI's mpirun, and those of its children (Spectrum MPI). Local ranks are as it says: in Open
// MPI 5 they are not in the order of ranks.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {

std::optional<Identity> from_open_mpi(const Environment& environment) {
  const auto world = place_variables(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!world) return std::nullopt;
  const auto local =
      place_variables(environment, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  Identity identity = identity_at("Open MPI's mpirun", *world, local);
  identity.hostname = variable(environment, "PMIX_HOSTNAME").value_or(own_hostname());
  const auto name = variable(environment, "PMIX_NAMESPACE");
  if (!name && identity.size > 1) {
    fail(Code::invalid_argument,
         fmt::format("OMPI_COMM_WORLD_SIZE={}, but PMIX_NAMESPACE, by which the ranks of this job "
                     "find each other, is not set; give them an address by mpirun -x "
                     "HOROVOD_GLOO_RENDEZVOUS_ADDR, and HOROVOD_RANK and HOROVOD_SIZE to each",
                     identity.size));
  }
  // The daemon's port makes it unique among the jobs that run on this machine.
  identity.job_name = fmt::format("Open MPI/{}/{}", name.value_or(""),
                                  variable(environment, "PMIX_SERVER_URI2").value_or(""));
  identity.meeting = local && local->count == world->count ? Meeting::local : Meeting::pmix;
  return identity;
}

}  // namespace hvd
