// The links to all hosts of a job: one to this machine, if it has ranks, and one for each ssh.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/transport/handshake.h"
#include "job/job.h"
#include "job/local/host_link.h"
#include "job/remote/agent_frames.h"

namespace hvd::job {

class Links {
 public:
  /// Starts an ssh to each host that this machine reaches by itself, but no rank. `job` and
  /// `defaults` outlive this. Throws Error{invalid_argument} where ranks shall be bound and cannot.
  Links(const Job& job, const JobKey& key, uint16_t store_port, const ProcessDefaults& defaults);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  size_t size() const { return links_.size(); }
  HostLink& operator[](size_t index) { return *links_[index]; }
  /// The one that has rank 0.
  HostLink& rank_zero() { return *rank_zero_; }

  /// How far each host has come, in the order of the job's hosts.
  std::vector<StartRow> rows() const;
  bool settled() const;
  /// Starts the ranks. `store`: how hosts reach it.
  void start(const Address& store);
  void signal_all(int signal);
  void pause_output(bool paused);

 private:
  void add_remote_links(const ProcessDefaults& defaults);

  const Job& job_;
  AgentSetup setup_;  ///< for other hosts
  std::vector<std::unique_ptr<HostLink>> links_;
  HostLink* rank_zero_ = nullptr;
};

}  // namespace hvd::job
