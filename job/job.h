// What horovodrun is going to do, all of it known before the first process is started.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "job/local/local_link.h"
#include "job/options/hosts.h"
#include "job/options/options.h"
#include "job/process/binding.h"
#include "job/remote/ssh.h"

namespace hvd::job {

/// How a job that is_local() reaches itself.
inline constexpr const char* kLoopback = "127.0.0.1";

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

  int ranks() const;
  const JobHost& host_of(int rank) const;
  /// All ranks are on this machine: nobody else is asked about anything.
  bool is_local() const { return hosts.size() == 1 && hosts.front().local; }
};

/// For the user who asked for -v: what runs where, and with which variables.
std::vector<std::string> describe(const Job& job, uint16_t store_port);

}  // namespace hvd::job
