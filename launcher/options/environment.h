// The environment of the processes of a job. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/knobs.h"
#include "core/transport/socket.h"
#include "launcher/options/options.h"
#include "launcher/worker/assignment.h"

namespace hvd::launcher {

/// Returns the part of the launcher's environment that ranks get, with the settings of flags and
/// the config file. Its knobs are those of the job.
Environment job_environment(const Environment& launcher, const Options& options);

/// How workers leave a job that has a state folder, or that goes on without them, and how those of
/// any job end if it loses its launcher.
struct CommitGrace {
  Duration when_asked{};     ///< from SIGTERM on, to reach a commit; 0: they end at once
  Duration when_lost{};      ///< after the loss of the launcher
  bool keeps_state = false;  ///< they write a commit then
};
/// `job`: the result of job_environment().
CommitGrace commit_grace(const Environment& job, bool elastic);

/// How the ranks of one host reach the Store, which serves the rendezvous.
struct StoreAddress {
  Address store{};                        ///< as this host reaches it
  std::vector<std::string> interfaces{};  ///< that the user allows; none: all
  std::string interface {};               ///< of this host, towards the Store
  bool one_host = true;
};

/// Returns the variables that are the same for all ranks of a host: the Store's address and the
/// interfaces to use. `job`: the result of job_environment().
Environment host_variables(const Environment& job, const StoreAddress& address);

/// Returns warnings for the user: variables that are set, but that ranks of horovodrun's own
/// launcher ignore.
std::vector<std::string> tell_of_unused(const Environment& job);

/// Returns the host file that Kubeflow's MPI operator puts into the launcher's pod. Empty outside
/// such a pod.
std::string hostfile_of_operator(const Environment& environment);

/// Returns `NAME=value` per variable, as exec takes them.
std::vector<std::string> assignments(const Environment& environment);

/// Returns the variables of one rank, for the runtime and for scripts of torch.distributed. `host`:
/// the name of its host.
Environment rank_variables(const std::string& host, const RankAssignment& ranks);

/// The same with the variables of a worker of an elastic job. A worker without a place has no rank.
Environment elastic_variables(const std::string& host, const AssignedWorker& worker);

/// Removes the variables of a rank, which a launcher that is a rank itself would pass on.
void remove_rank(Environment& environment);

}  // namespace hvd::launcher
