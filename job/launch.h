// One job on this machine from start to end: serves the Store, starts the agent, passes output on,
// and does what the Driver says. One thread, one epoll.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/knobs.h"
#include "job/hosts.h"
#include "job/options.h"

namespace hvd::job {

struct Job {
  Options options;
  std::vector<Place> places;
  std::string program;      ///< path of options.command[0]
  Environment environment;  ///< what all ranks get, but for their place and where to meet
  Duration grace{};
};

/// Returns the exit code of the job. Throws Error when it could not be started.
int launch(const Job& job);

}  // namespace hvd::job
