// Hydra, which is mpirun of MPICH and of Intel MPI; srun --mpi=pmi2 speaks the same protocol.
#include <fmt/core.h>
#include <sys/stat.h>

#include <limits>

#include "core/base/error.h"
#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/slurm_variables.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

bool is_socket(int64_t fd) {
  struct stat status {};
  return ::fstat(static_cast<int>(fd), &status) == 0 && S_ISSOCK(status.st_mode);
}

std::optional<int64_t> pmi_fd(const Environment& environment) {
  return number_variable(environment, "PMI_FD", 0, std::numeric_limits<int32_t>::max());
}

}  // namespace

std::optional<Identity> from_pmi(const Environment& environment) {
  const auto fd = pmi_fd(environment);
  if (!fd || !is_socket(*fd)) return std::nullopt;
  const auto world = place_variables(environment, "PMI_RANK", "PMI_SIZE");
  if (!world) return std::nullopt;
  auto local = place_variables(environment, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  const char* const launcher = local ? "MPICH's mpirun (PMI)" : "srun (PMI)";
  if (!local) local = slurm_local_place(environment);
  Identity identity = identity_at(launcher, *world, local);
  identity.hostname = variable(environment, "SLURMD_NODENAME").value_or(own_hostname());
  identity.meeting = Meeting::pmi;
  identity.meeting_fd = static_cast<int>(*fd);
  return identity;
}

std::optional<Identity> from_closed_pmi(const Environment& environment) {
  const auto world = place_variables(environment, "PMI_RANK", "PMI_SIZE");
  if (!world || world->count == 1) return std::nullopt;
  fail(Code::invalid_argument,
       fmt::format("PMI_RANK={} and PMI_SIZE={} say that mpirun started this process, but PMI_FD, "
                   "the connection over which its ranks find each other, {}; a program between "
                   "mpirun and this one has closed it (Python's subprocess does, unless "
                   "close_fds=False): start this one directly, or set HOROVOD_RANK, HOROVOD_SIZE "
                   "and HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT",
                   world->index, world->count, pmi_fd(environment) ? "is closed" : "is not set"));
}

}  // namespace hvd
