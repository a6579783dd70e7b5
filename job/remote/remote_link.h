// Ranks on other hosts: an ssh to the first of them, and at its far end an agent (agent.h), which
// does there what LocalLink does here, and has agents below it for the other ones.
#pragma once

#include <string>
#include <vector>

#include "job/local/host_link.h"
#include "job/remote/agent_connection.h"
#include "job/remote/agent_frames.h"
#include "job/remote/host_tree.h"

namespace hvd::job {

struct RemoteHost {
  uint32_t index = 0;  ///< in the order of the job's hosts
  std::string name;    ///< as the user wrote it
  std::vector<Place> places;
};

struct RemotePlan {
  std::vector<RemoteHost> hosts;  ///< at least one; their indexes rise
  size_t fan_out = 1;             ///< how many hosts an agent reaches by itself
  size_t output_window = 0;       ///< bytes of output that may be on their way from each
  SshOptions ssh;
};

class RemoteLink final : public HostLink {
 public:
  /// Starts the ssh. `setup`: what all hosts have in common, which is all but their places; it
  /// outlives this, as the others do. `environment`: what the ssh gets of variables.
  RemoteLink(RemotePlan plan, const AgentSetup& setup, const Environment& environment,
             const ProcessDefaults& defaults);

  int fd() const override { return connection_.fd(); }
  void take(HostNews& news) override;
  void tell_rows(std::vector<StartRow>& rows) const override;
  bool settled() const override;
  void start(const Address& store) override;
  void signal_all(int signal) override;
  void pause_output(bool paused) override;
  std::optional<size_t> input_room() const override;
  void give_input(std::string_view bytes) override;

 private:
  struct Far {
    RemoteHost host;
    Branch branch;  ///< of the plan's hosts: itself, and those that are reached from there
    StartRow row;
    bool over = false;        ///< nothing is left there, or nothing more is heard of it
    size_t output_taken = 0;  ///< bytes for which no new room was given yet
  };

  void add_branch(const Branch& branch, const std::string& from);
  Far& far(uint32_t index);
  void take_frame(const AgentFrame& frame, HostNews& news);
  void take_hello(Far& far, const AgentHello& hello, HostNews& news);
  void take_refusal(Far& far, AgentRefusal refusal);
  void take_end(Far& far, const AgentEnd& end, HostNews& news);
  void give_output_room();
  void take_taken_input(const AgentNumbers& numbers);
  void say(const Far& far, AgentFrame::Kind kind, ByteVector payload);
  void say_to_all(AgentFrame::Kind kind, const ByteVector& payload);

  RemotePlan plan_;
  const AgentSetup& setup_;
  std::vector<Far> fars_;  ///< in the order of the plan
  AgentConnection connection_;
  bool input_ended_ = false;  ///< or nobody reads it there
  size_t input_on_its_way_ = 0;
  bool paused_ = false;
  bool started_ = false;
  bool ended_ = false;  ///< the connection; all have been told so
};

}  // namespace hvd::job
