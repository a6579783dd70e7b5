// Workers on other hosts: one ssh to the first of them, with an agent at the remote end (agent.h).
// The agent does there what LocalLink does here, and starts agents below it for the other hosts.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "launcher/local/host_link.h"
#include "launcher/remote/agent_connection.h"
#include "launcher/remote/agent_frames.h"
#include "launcher/remote/host_tree.h"

namespace hvd::launcher {

struct RemoteHost {
  uint32_t index = 0;  ///< in the order of the job's hosts
  std::string name;    ///< as the user wrote it
  int slots = 0;
};

struct RemotePlan {
  std::vector<RemoteHost> hosts;  ///< at least one; ascending indexes
  size_t fan_out = 1;             ///< how many hosts an agent reaches directly
  size_t output_window = 0;       ///< bytes of output that may be in flight from each
  SshOptions ssh;
};

class RemoteLink final : public HostLink {
 public:
  /// Starts the ssh. `setup`: for all hosts, except the name and the slots of each; all references
  /// outlive this. `environment`: the variables of the ssh.
  RemoteLink(RemotePlan plan, const AgentSetup& setup, const Environment& environment,
             const ProcessDefaults& defaults);

  int fd() const override { return connection_.fd(); }
  void take(HostNews& news) override;
  void tell_rows(std::vector<StartRow>& rows) const override;
  bool settled() const override;
  void start_workers(std::span<const AssignedWorker> workers, const Address& store) override;
  void no_more_workers() override;
  void signal(const WorkerId& worker, int signal) override;
  void signal_all(int signal) override;
  void ask_for_dumps(Question question, std::set<int>& hosts) override;
  void pause_output(bool paused) override;
  std::optional<size_t> input_room() const override;
  void give_input(std::string_view bytes) override;

 private:
  struct Far {
    RemoteHost host;
    Branch branch;  ///< of the plan's hosts: this one, and those reached through it
    StartRow row;
    std::set<WorkerId> workers{};  ///< started there
    bool empty = true;             ///< none of these is left
    bool over = false;             ///< no worker will come, or the host is lost
    size_t output_taken = 0;       ///< bytes for which no new room has been granted yet
  };

  void add_branch(const Branch& branch, const std::string& from);
  Far& far(uint32_t index);
  Far* find(int host);
  static WorkerId known(const Far& far, int slot, int incarnation);
  void take_frame(const AgentFrame& frame, HostNews& news);
  void take_hello(Far& far, const AgentHello& hello, HostNews& news);
  static void take_ready(Far& far, AgentReady ready);
  static void take_output(Far& far, AgentOutput output, HostNews& news);
  void take_refusal(Far& far, AgentRefusal refusal);
  void take_end(Far& far, const AgentEnd& end, HostNews& news);
  void take_nothing_left(Far& far, const AgentNumbers& numbers, HostNews& news);
  void start_on(Far& far, std::span<const AssignedWorker> workers);
  void give_output_room();
  void take_taken_input(const AgentNumbers& numbers);
  void say(const Far& far, AgentFrame::Kind kind, ByteVector payload);
  void say_to_all(AgentFrame::Kind kind, const ByteVector& payload);

  RemotePlan plan_;
  const AgentSetup& setup_;
  std::vector<Far> fars_;  ///< in the order of the plan
  AgentConnection connection_;
  bool input_ended_ = false;  ///< or is no longer read
  size_t input_on_its_way_ = 0;
  bool paused_ = false;
  bool started_ = false;      ///< some worker
  bool more_ = true;          ///< more workers may come
  bool reads_input_ = false;  ///< a worker on the first host reads it
  bool ended_ = false;        ///< the connection has ended, and its hosts were told
};

}  // namespace hvd::launcher
