// srun. The batch script itself has nearly the same variables, but is no rank: only a step has
// SLURM_STEP_ID and tasks of its own.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/slurm_variables.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

// Below those that the kernel gives to whoever asks for any.
constexpr int64_t kFirstPort = 20000;
constexpr int64_t kPortCount = 12000;
constexpr int64_t kMaxNumber = int64_t{1} << 40;
constexpr const char* kNodes = "SLURM_STEP_NODELIST";

/// Without --mpi nobody carries a word between nodes: all ranks find the same host and port by
/// themselves.
void agree_on_address(const Environment& environment, int64_t job, int64_t step,
                      Identity& identity) {
  identity.meeting = Meeting::address;
  identity.store_host = first_of_node_list(kNodes, variable(environment, kNodes).value_or(""));
  identity.store_port = static_cast<uint16_t>(kFirstPort + (job * 31 + step) % kPortCount);
}

}  // namespace

std::optional<Identity> from_slurm(const Environment& environment) {
  const auto step = number_variable(environment, "SLURM_STEP_ID", 0, kMaxNumber);
  const auto job = number_variable(environment, "SLURM_JOB_ID", 0, kMaxNumber);
  if (!step || !job) return std::nullopt;
  const auto world = place_variables(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (!world) return std::nullopt;
  const auto local = slurm_local_place(environment);
  Identity identity = identity_at("srun", *world, local);
  identity.hostname = variable(environment, "SLURMD_NODENAME").value_or(own_hostname());
  identity.job_name = fmt::format("Slurm/{}/{}", *job, *step);
  if (local && local->count == world->count) {
    identity.meeting = Meeting::local;
  } else if (variable(environment, "PMIX_NAMESPACE")) {
    identity.meeting = Meeting::pmix;
  } else if (identity.size > 1) {
    agree_on_address(environment, *job, *step, identity);
  }
  return identity;
}

}  // namespace hvd
