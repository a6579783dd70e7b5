// One job from start to end: serves the Store, holds a link to each host, passes output on, and
// does what the Driver says. One thread, one epoll.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/knobs.h"
#include "job/hosts.h"
#include "job/local_link.h"
#include "job/options.h"
#include "job/ssh.h"

namespace hvd::job {

struct JobHost {
  std::string name;
  bool local = false;
  std::vector<Place> places;  ///< of this host
};

struct Job {
  Options options;
  std::vector<JobHost> hosts;
  RankCommand command;
  BindingWish binding{};
  Duration grace{};
  std::chrono::seconds start_timeout{};
  /// Of other hosts only.
  SshOptions ssh;
  size_t fan_out = 1;                  ///< how many hosts one machine reaches by itself
  std::string folder;                  ///< where all ranks work
  std::vector<std::string> addresses;  ///< of this machine, where agents may try to reach it

  /// All ranks are on this machine: nobody else is asked about anything.
  bool is_local() const { return hosts.size() == 1 && hosts.front().local; }
};

/// Returns the exit code of the job. Throws Error when it could not be started.
int launch(const Job& job);

}  // namespace hvd::job
