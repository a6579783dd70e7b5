// Hydra, the mpirun of MPICH and Intel MPI. srun --mpi=pmi2 speaks the same protocol.
#include <fmt/core.h>
#include <sys/stat.h>

#include <limits>

#include "core/base/error.h"
#include "core/bootstrap/ancestors.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/launchers/slurm_variables.h"
#include "core/bootstrap/rank_lock.h"
#include "core/bootstrap/variables.h"

namespace hvd {
namespace {

/// The inode of the connection to the launcher, which no other socket has. Empty if not a socket.
std::string job_of_connection(const struct stat& status) {
  return S_ISSOCK(status.st_mode) ? fmt::format("PMI/{}", status.st_ino) : "";
}

std::string own_job(int64_t fd) {
  struct stat status {};
  return ::fstat(static_cast<int>(fd), &status) == 0 ? job_of_connection(status) : "";
}

/// Returns the job of an ancestor that has not passed its connection on.
std::string job_of(pid_t process, int64_t fd) {
  struct stat status {};
  const std::string path = fmt::format("/proc/{}/fd/{}", process, fd);
  return ::stat(path.c_str(), &status) == 0 ? job_of_connection(status) : "";
}

std::optional<int64_t> pmi_fd(const Environment& environment) {
  return number_variable(environment, "PMI_FD", 0, std::numeric_limits<int32_t>::max());
}

/// A child of a rank gets the error that says so, and not the advice about the connection.
void refuse_child_of_rank(const Environment& environment, RankAndSize world) {
  const auto fd = pmi_fd(environment);
  if (!fd) return;
  Identity rank = identity_at("PMI", world, std::nullopt);
  for (const pid_t process : ancestors()) {
    rank.job_name = job_of(process, *fd);
    require_free(rank);
  }
}

}  // namespace

std::optional<Identity> from_pmi(const Environment& environment) {
  const auto fd = pmi_fd(environment);
  const std::string job = fd ? own_job(*fd) : "";
  if (job.empty()) return std::nullopt;
  const auto world = rank_and_size_variables(environment, "PMI_RANK", "PMI_SIZE");
  if (!world) return std::nullopt;
  auto local = rank_and_size_variables(environment, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  const char* const launcher = local ? "MPICH's mpirun (PMI)" : "srun (PMI)";
  if (!local) local = slurm_local_rank(environment);
  Identity identity = identity_at(launcher, *world, local);
  identity.hostname = variable(environment, "SLURMD_NODENAME").value_or(own_hostname());
  identity.job_name = job;
  identity.rendezvous = RendezvousMethod::pmi;
  identity.pmi_fd = static_cast<int>(*fd);
  return identity;
}

std::optional<Identity> from_closed_pmi(const Environment& environment) {
  const auto world = rank_and_size_variables(environment, "PMI_RANK", "PMI_SIZE");
  if (!world) return std::nullopt;
  refuse_child_of_rank(environment, *world);
  if (world->size == 1) return std::nullopt;
  fail(
      Code::invalid_argument,
      fmt::format("PMI_RANK={} and PMI_SIZE={} say that mpirun started this process, but PMI_FD, "
                  "the connection to mpirun by which the ranks find each other, {}; a program "
                  "between mpirun and this process has closed it (Python's subprocess does, unless "
                  "close_fds=False): start this process directly, or set HOROVOD_RANK, "
                  "HOROVOD_SIZE, HOROVOD_GLOO_RENDEZVOUS_ADDR and HOROVOD_GLOO_RENDEZVOUS_PORT",
                  world->rank, world->size, pmi_fd(environment) ? "is closed" : "is not set"));
}

}  // namespace hvd
