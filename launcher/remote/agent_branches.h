// The agents that an agent has started on further hosts. Relays their frames to and from the
// launcher; reads only the host number of a frame.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/process/spawn.h"
#include "launcher/remote/agent_connection.h"
#include "launcher/remote/agent_frames.h"

namespace hvd::launcher {

class AgentBranches {
 public:
  /// `up`: sends a frame to the launcher.
  AgentBranches(const ProcessDefaults& defaults, std::function<void(const AgentFrame&)> up);

  /// Readable when take() has something to do.
  int fd() const { return events_.get(); }
  void reach(const AgentReach& reach);
  /// Sends the frame to the branch of the host that it names. Returns false if no branch has that
  /// host.
  bool pass_down(const AgentFrame& frame);
  /// Relays the received frames to the launcher. Never blocks.
  void take();
  /// True once every ssh has ended.
  bool over() const;

 private:
  struct Branch {
    uint32_t first = 0, last = 0;  ///< the agent's host, and the last host that it reaches
    std::unique_ptr<AgentConnection> agent;  ///< null: it could not be started, or has ended
  };
  void take(Branch& branch);

  const ProcessDefaults& defaults_;
  std::function<void(const AgentFrame&)> up_;
  FileDescriptor events_;
  std::vector<Branch> branches_;
};

}  // namespace hvd::launcher
