// One ssh with an agent at its far end, and the frames between: those of the agent's own host and
// of the hosts that it reaches in turn. Owned by the launcher (remote_link.h), or by an agent for
// those below it (agent_branches.h). What frames mean is the owner's business.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "job/process/piped_child.h"
#include "job/remote/agent_frames.h"
#include "job/remote/ssh.h"
#include "job/stream/console.h"

namespace hvd::job {

class AgentConnection {
 public:
  /// Starts the ssh, or first one that tells its settings. `environment`: what both get of
  /// variables. Throws Error{internal} when there can be no such process.
  AgentConnection(std::string host, SshOptions ssh, const Environment& environment,
                  const ProcessDefaults& defaults);
  // The end cuts the agent off if it still speaks: it then ends what it has.

  /// Readable when take() has something to do.
  int fd() const { return events_.get(); }
  /// Hands over what has come, but not all of much, and sends what waits. Never blocks. An Error of
  /// `each` ends this connection.
  void take(const std::function<void(const AgentFrame&)>& each);
  /// Of no effect before the agent has said something, and after its end.
  void say(const AgentFrame& frame);

  /// The ssh has ended, and all that came has been taken.
  bool over() const { return over_; }
  /// Of one that is over: what the user may be told about it, before the start and after it.
  const AgentEnd& end() const { return end_; }

 private:
  void ask_for_settings();
  /// False while the answer is not complete. Of one without end, the beginning is taken.
  bool take_settings();
  void begin(UnknownHost unknown);
  std::unique_ptr<PipedChild> start(std::vector<std::string> command);
  bool receive();
  void listen_to_ssh();
  void take_frames(const std::function<void(const AgentFrame&)>& each);
  /// What comes from there is of no use.
  void break_off(const std::string& why);
  void take_end();
  void send();

  std::string host_;
  SshOptions ssh_;
  const std::vector<std::string> environment_;
  const ProcessDefaults& defaults_;
  FileDescriptor events_;
  std::string settings_;                      ///< that ssh has printed
  std::unique_ptr<PipedChild> settings_ssh_;  ///< `ssh -G`, while it runs
  std::unique_ptr<PipedChild> process_;       ///< the ssh to the agent, from begin() on
  std::unique_ptr<Console> to_agent_;
  bool send_watched_ = false;
  AgentFrameReader reader_{true};
  std::string said_;    ///< by ssh, the end of it
  std::string broken_;  ///< why we stopped listening
  AgentEnd end_;
  bool over_ = false;
};

}  // namespace hvd::job
