// One ssh with an agent at the remote end, and the frames in between: those of the agent's host and
// of the hosts that it reaches. Owned by the launcher (remote_link.h), or by an agent for the
// agents below it (agent_branches.h). The owner interprets the frames.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "launcher/process/piped_child.h"
#include "launcher/remote/agent_frames.h"
#include "launcher/remote/ssh.h"
#include "launcher/stream/console.h"

namespace hvd::launcher {

class AgentConnection {
 public:
  /// Starts the ssh, or first an `ssh -G` that prints its settings. `environment`: the variables of
  /// both. Throws Error{internal} if no process can be made.
  AgentConnection(std::string host, SshOptions ssh, const Environment& environment,
                  const ProcessDefaults& defaults);
  // Destruction kills the ssh; the agent then ends its workers.

  /// Readable when take() has something to do.
  int fd() const { return events_.get(); }
  /// Passes received frames to `each`, up to a limit per call, and sends waiting frames. Never
  /// blocks. An Error thrown by `each` ends this connection.
  void take(const std::function<void(const AgentFrame&)>& each);
  /// Sends a frame. Ignored before the ssh to the agent has been started, and after its end.
  void say(const AgentFrame& frame);

  /// True once the ssh has ended and all its output has been taken.
  bool over() const { return over_; }
  /// Once over(): the reason for the user, for an end before the start of workers and after it.
  const AgentEnd& end() const { return end_; }

 private:
  void ask_for_settings();
  /// Returns false while the settings are incomplete. Longer output than the limit is cut.
  bool take_settings();
  void begin(UnknownHost unknown);
  std::unique_ptr<PipedChild> start(std::vector<std::string> command);
  bool receive();
  void listen_to_ssh();
  void take_frames(const std::function<void(const AgentFrame&)>& each);
  /// Ends the connection because the remote end sent something invalid.
  void break_off(const std::string& why);
  void take_end();
  void send();

  std::string host_;
  SshOptions ssh_;
  const std::vector<std::string> environment_;
  const ProcessDefaults& defaults_;
  FileDescriptor events_;
  std::string settings_;                      ///< printed by `ssh -G`
  std::unique_ptr<PipedChild> settings_ssh_;  ///< `ssh -G`, while it runs
  std::unique_ptr<PipedChild> process_;       ///< the ssh to the agent, from begin() on
  std::unique_ptr<Console> to_agent_;
  bool send_watched_ = false;
  AgentFrameReader reader_{true};
  std::string said_;    ///< the last part of ssh's standard error
  std::string broken_;  ///< why the connection was ended by us
  AgentEnd end_;
  bool over_ = false;
};

}  // namespace hvd::launcher
