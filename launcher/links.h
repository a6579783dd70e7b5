// The links to all hosts of a job: one to this machine, if it has workers, and one for each ssh.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "core/transport/handshake.h"
#include "launcher/job.h"
#include "launcher/local/host_link.h"
#include "launcher/remote/agent_frames.h"
#include "launcher/remote/remote_link.h"

namespace hvd::launcher {

class Links {
 public:
  /// Starts one ssh per host that this machine reaches directly, but no worker. `job`, whose
  /// hosts may grow, and `defaults` outlive this. Throws Error{invalid_argument} if ranks are to be
  /// bound and cannot be.
  Links(const Job& job, const JobKey& key, uint16_t store_port, const ProcessDefaults& defaults);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// Adds a link to this host, which is new or lost, and returns its index. A new host of
  /// `job.hosts` is last.
  size_t add_host(size_t host);

  size_t size() const { return links_.size(); }
  HostLink& operator[](size_t index) { return *links_[index]; }
  /// Returns the link to rank 0 of the first generation. It is the first host of its link that has
  /// workers, since ranks ascend over the hosts.
  HostLink& rank_zero(const Assignment& first);

  /// Returns the start-up state of each host, in the order of the job's hosts.
  std::vector<StartRow> rows() const;
  bool settled() const;
  /// Starts each worker on the host in its id. `store`: the Store's address on this machine.
  void start_workers(std::span<const AssignedWorker> workers, const Address& store);
  void no_more_workers();
  void signal(const WorkerId& worker, int signal);
  void signal_all(int signal);
  /// Returns the hosts of which a HostDump will follow.
  std::set<int> ask_for_dumps(Question question);
  void pause_output(bool paused);

 private:
  void add_local_link(size_t host);
  void add_remote_links();
  RemotePlan remote_plan(std::vector<RemoteHost> hosts, size_t all) const;

  const Job& job_;
  const JobKey key_;
  const ProcessDefaults& defaults_;
  AgentSetup setup_;  ///< for other hosts
  std::vector<std::unique_ptr<HostLink>> links_;
  std::vector<size_t> first_hosts_;  ///< of each link
};

}  // namespace hvd::launcher
