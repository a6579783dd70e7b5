// The plan of a job, complete before its first process is started (plan.h).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/discovery.h"
#include "launcher/elastic/elastic.h"
#include "launcher/local/local_link.h"
#include "launcher/options/hosts.h"
#include "launcher/options/options.h"
#include "launcher/process/binding.h"
#include "launcher/remote/ssh.h"
#include "launcher/worker/assignment.h"

namespace hvd::launcher {

/// How the processes of a job that is_local() reach this machine.
inline constexpr const char* kLoopback = "127.0.0.1";

struct JobHost {
  std::string name;
  bool local = false;
  int slots = 0;         ///< how many workers run there at the same time
  bool missing = false;  ///< an elastic job has been started without it
};

/// The program that starts the ranks.
enum class JobStarter : uint8_t { horovodrun, mpirun, jsrun };

struct Job {
  Options options;
  JobStarter starter{};
  std::vector<std::string> warnings;  ///< one line each, for standard error
  /// Why the command would fail at once; empty: it would not. Otherwise only the program is filled
  /// in below, if it was found.
  std::string problem;
  RankCommand command;
  std::vector<JobHost> hosts;
  Assignment assignment;  ///< of the first generation
  std::optional<elastic::Settings> elastic;
  std::optional<DiscoveryPlan> discovery;
  HostNames own;          ///< names of this machine, to recognize it among discovered hosts
  bool may_grow = false;  ///< workers on other hosts may be started later
  std::string own_name;   ///< of this machine, for other hosts
  /// Whether MASTER_ADDR and MASTER_PORT are the launcher's, not the user's.
  bool chooses_master_address = false, chooses_master_port = false;
  BindingWish binding{};
  Duration grace{}, heartbeat{};
  std::chrono::seconds start_timeout{};
  std::vector<Host> listed_hosts;  ///< for mpirun and jsrun: with the names that the user wrote
  // Only for ranks on other hosts:
  SshOptions ssh;
  size_t fan_out = 1;                  ///< how many hosts a process starts agents on directly
  std::string folder;                  ///< the working folder of all ranks
  std::vector<std::string> addresses;  ///< of this machine, where agents try to connect

  const JobHost& host_of(const WorkerId& worker) const {
    return hosts[static_cast<size_t>(worker.host)];
  }
  /// The name of that host for messages; empty if the job has one host.
  std::string named_host_of(const WorkerId& worker) const {
    return hosts.size() == 1 ? "" : host_of(worker).name;
  }
  /// True if all ranks are on this machine: no ssh, no agents, only loopback.
  bool is_local() const { return hosts.size() == 1 && hosts.front().local && !may_grow; }
};

/// Returns the first workers of an elastic job that is started without its missing hosts. None:
/// they would be fewer than its minimum.
std::optional<Assignment> assignment_without_missing(const Job& job);

/// Returns the variables by which the ranks of a script of torch.distributed find rank 0: those
/// that the user has not set. `port`: free.
Environment master_variables(const Job& job, const WorkerId& rank_zero, uint16_t port);

/// Returns the lines of --verbose: ranks and hosts, and the variables that ranks get.
std::vector<std::string> describe(const Job& job, uint16_t store_port);

}  // namespace hvd::launcher
