// Open MPI's mpirun, and that of its derivatives (Spectrum MPI). Local ranks are taken from its
// variables, since in Open MPI 5 they are not in the order of ranks.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/variables.h"

namespace hvd {

std::optional<Identity> from_open_mpi(const Environment& environment) {
  const auto world =
      rank_and_size_variables(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!world) return std::nullopt;
  const auto local = rank_and_size_variables(environment, "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE");
  Identity identity = identity_at("Open MPI's mpirun", *world, local);
  identity.hostname = variable(environment, "PMIX_HOSTNAME").value_or(own_hostname());
  const auto name = variable(environment, "PMIX_NAMESPACE");
  if (!name && identity.size > 1) {
    fail(
        Code::invalid_argument,
        fmt::format("OMPI_COMM_WORLD_SIZE={}, but PMIX_NAMESPACE, which identifies the job, is not "
                    "set; pass an address with mpirun -x HOROVOD_GLOO_RENDEZVOUS_ADDR, and set "
                    "HOROVOD_RANK and HOROVOD_SIZE for each rank",
                    identity.size));
  }
  // The URI of the daemon makes the name unique among the jobs that run on this machine.
  identity.job_name = fmt::format("Open MPI/{}/{}", name.value_or(""),
                                  variable(environment, "PMIX_SERVER_URI2").value_or(""));
  identity.rendezvous =
      local && local->size == world->size ? RendezvousMethod::local : RendezvousMethod::pmix;
  return identity;
}

}  // namespace hvd
