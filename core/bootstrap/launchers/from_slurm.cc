// srun. The batch script has nearly the same variables but is not a rank: only a step has
// SLURM_STEP_ID and tasks of its own.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/launchers/slurm_variables.h"
#include "core/bootstrap/variables.h"

namespace hvd {
namespace {

// Below the ephemeral ports of the kernel.
constexpr int64_t kFirstPort = 20000;
constexpr int64_t kPortCount = 12000;
constexpr int64_t kMaxNumber = int64_t{1} << 40;
constexpr const char* kNodes = "SLURM_STEP_NODELIST";

/// Without --mpi there is no rendezvous between nodes, so each rank computes the same host and
/// port.
void compute_address(const Environment& environment, int64_t job, int64_t step,
                     Identity& identity) {
  identity.rendezvous = RendezvousMethod::address;
  identity.store_host = first_of_node_list(kNodes, variable(environment, kNodes).value_or(""));
  identity.store_port = static_cast<uint16_t>(kFirstPort + (job * 31 + step) % kPortCount);
}

}  // namespace

std::optional<Identity> from_slurm(const Environment& environment) {
  const auto step = number_variable(environment, "SLURM_STEP_ID", 0, kMaxNumber);
  const auto job = number_variable(environment, "SLURM_JOB_ID", 0, kMaxNumber);
  if (!step || !job) return std::nullopt;
  const auto world = rank_and_size_variables(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (!world) return std::nullopt;
  const auto local = slurm_local_rank(environment);
  Identity identity = identity_at("srun", *world, local);
  identity.hostname = variable(environment, "SLURMD_NODENAME").value_or(own_hostname());
  identity.job_name = fmt::format("Slurm/{}/{}", *job, *step);
  if (local && local->size == world->size) {
    identity.rendezvous = RendezvousMethod::local;
  } else if (variable(environment, "PMIX_NAMESPACE")) {
    identity.rendezvous = RendezvousMethod::pmix;
  } else if (identity.size > 1) {
    compute_address(environment, *job, *step, identity);
  }
  return identity;
}

}  // namespace hvd
