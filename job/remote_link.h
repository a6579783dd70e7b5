// Ranks on another host: an ssh, and at its far end an agent (agent.h), which does there what
// LocalLink does here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "job/agent_frames.h"
#include "job/console.h"
#include "job/host_link.h"
#include "job/spawn.h"
#include "job/ssh.h"

namespace hvd::job {

struct RemotePlan {
  uint32_t index = 0;  ///< in the order of the job's hosts
  std::string host;    ///< as the user wrote it
  AgentSetup setup;
};

class RemoteLink final : public HostLink {
 public:
  /// Starts the ssh. `environment`: what it gets of variables.
  RemoteLink(RemotePlan plan, const SshOptions& ssh, const Environment& environment,
             const ProcessDefaults& defaults);
  /// Cuts the agent off if it still speaks: it then ends what it has.
  ~RemoteLink() override;

  int fd() const override { return events_.get(); }
  void take(HostNews& news) override;
  StartRow row() const override { return row_; }
  void start(const Address& store) override;
  void signal_all(int signal) override;
  void pause_output(bool paused) override;
  std::optional<size_t> input_room() const override;
  void give_input(std::string_view bytes) override;

 private:
  void begin(const Environment& environment);
  bool receive();
  void listen_to_ssh();
  void take_frames(HostNews& news);
  void take_frame(const AgentFrame& frame, HostNews& news);
  void take_hello(const AgentHello& hello);
  void take_end(HostNews& news);
  bool is_ours(int rank) const;
  void say(AgentFrame::Kind kind, ByteVector payload);
  void send();
  void break_off(const std::string& why);

  RemotePlan plan_;
  SshOptions ssh_;
  const ProcessDefaults& defaults_;
  Program program_;
  std::unique_ptr<Spawned> process_;
  FileDescriptor pidfd_, in_, out_, err_, events_;  ///< in_: what we write, the others we read
  std::unique_ptr<Console> to_agent_;
  bool send_watched_ = false;
  AgentFrameReader reader_{true};
  StartRow row_;
  std::string said_;          ///< by ssh, the end of it
  std::string broken_;        ///< why we stopped listening
  bool input_ended_ = false;  ///< or nobody reads it there
  size_t input_on_its_way_ = 0;
  bool started_ = false;
  bool empty_ = false;  ///< nothing is left there
  bool over_ = false;   ///< the ssh has ended
};

}  // namespace hvd::job
