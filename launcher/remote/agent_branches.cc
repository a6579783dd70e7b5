#include "launcher/remote/agent_branches.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "launcher/process/command.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {

AgentBranches::AgentBranches(const ProcessDefaults& defaults,
                             std::function<void(const AgentFrame&)> up)
    : defaults_(defaults), up_(std::move(up)), events_(epoll_create1(EPOLL_CLOEXEC)) {}

void AgentBranches::reach(const AgentReach& reach) {
  const Environment own = process_environment();
  SshOptions ssh = reach.ssh;
  ssh.program = find_program("ssh", path_of(own));
  if (ssh.program.empty()) {
    AgentEnd end{.before = {StartStep::ssh, "ssh was not found in PATH there", {}}, .after = {}};
    end.before.advice = {"to install it there: apt-get install openssh-client"};
    return up_({AgentFrame::Kind::lost, reach.first, to_bytes(end)});
  }
  Branch& branch = branches_.emplace_back();
  branch.first = reach.first;
  branch.last = reach.last;
  branch.agent = std::make_unique<AgentConnection>(reach.host, std::move(ssh), own, defaults_);
  watch(events_, branch.agent->fd());
}

bool AgentBranches::pass_down(const AgentFrame& frame) {
  for (const Branch& branch : branches_) {
    if (frame.host < branch.first || frame.host > branch.last) continue;
    if (branch.agent) branch.agent->say(frame);  // late frames are dropped
    return true;
  }
  return false;
}

void AgentBranches::take() {
  for (Branch& branch : branches_)
    if (branch.agent) take(branch);
}

/// Only hello lacks the host number: an agent does not know it yet at that time.
void AgentBranches::take(Branch& branch) {
  branch.agent->take([&](const AgentFrame& frame) {
    const bool hello = frame.kind == AgentFrame::Kind::hello && frame.host == kNoHost;
    if (hello) return up_({frame.kind, branch.first, frame.payload});
    if (frame.host < branch.first || frame.host > branch.last) Reader::malformed("host");
    up_(frame);
  });
  if (!branch.agent->over()) return;
  up_({AgentFrame::Kind::lost, branch.first, to_bytes(branch.agent->end())});
  branch.agent.reset();
}

bool AgentBranches::over() const {
  return std::ranges::all_of(branches_, [](const Branch& branch) { return !branch.agent; });
}

}  // namespace hvd::launcher
