// What the processes of a job find in their environment. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/transport/socket.h"
#include "job/options/hosts.h"
#include "job/options/options.h"

namespace hvd::job {

/// The descriptor under which every rank finds the job's key. High, since shells use low ones.
inline constexpr int kKeyDescriptor = 100;

/// The launcher's environment as far as it is passed on, with the settings that flags and the
/// config file give. The knobs in it are those of the job.
Environment job_environment(const Environment& launcher, const Options& options);

/// Where the ranks of one host meet those of the others, and over what.
struct Meeting {
  Address store{};                        ///< as this host reaches it
  std::vector<std::string> interfaces{};  ///< that the user allows; none: all
  std::string interface {};               ///< by which the Store is reached
  bool one_host = true;
};

/// What is the same for all ranks of a host beside that: where to meet, who moves the data.
Environment meeting_variables(const Environment& job, const Meeting& meeting);

/// For the user: variables that are set and that ranks of horovodrun's own launcher do not heed.
std::vector<std::string> tell_of_unused(const Environment& job);

/// The host file that Kubeflow's MPI operator has put into the pod of the launcher; empty when this
/// is no such pod.
std::string hostfile_of_operator(const Environment& environment);

/// `NAME=value` of each, as exec takes them.
std::vector<std::string> assignments(const Environment& environment);

/// What one rank is told about its place.
Environment rank_variables(const Place& place);

}  // namespace hvd::job
