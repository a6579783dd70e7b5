// The agents that an agent has started on further hosts: it carries their frames to the launcher
// and back, and knows of a frame no more than the host it names.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "job/process/spawn.h"
#include "job/remote/agent_connection.h"
#include "job/remote/agent_frames.h"

namespace hvd::job {

class AgentBranches {
 public:
  /// `up`: says a frame to the launcher.
  AgentBranches(const ProcessDefaults& defaults, std::function<void(const AgentFrame&)> up);

  /// Readable when take() has something to do.
  int fd() const { return events_.get(); }
  void reach(const AgentReach& reach);
  /// Towards the host that it names. False when that is on no branch.
  bool pass_down(const AgentFrame& frame);
  /// Carries up what has come. Never blocks.
  void take();
  /// No ssh is left.
  bool over() const;

 private:
  struct Branch {
    uint32_t first = 0, last = 0;  ///< hosts: of the agent, and the last one that it reaches
    std::unique_ptr<AgentConnection> agent;  ///< none: it could not be started, or is over
  };
  void take(Branch& branch);

  const ProcessDefaults& defaults_;
  std::function<void(const AgentFrame&)> up_;
  FileDescriptor events_;
  std::vector<Branch> branches_;
};

}  // namespace hvd::job
