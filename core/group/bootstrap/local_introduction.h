// How the ranks of a job that is on one machine find rank 0: by an abstract unix socket whose name
// they all know. The kernel tells each side which user the other one is, so that no process of
// another user can say or hear anything. Such a process can connect all the same, as often as it
// likes: it costs rank 0 a bounded time per turn and one line in the log.
#pragma once

#include <chrono>
#include <string>

#include "core/base/log.h"
#include "core/group/bootstrap/meeting.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// Where rank 0 is asked. Owned and driven by one thread; never blocks.
class Door {
 public:
  /// Connections that one call of answer() takes, so that the same thread gets on with its work.
  static constexpr int kVisitorsPerTurn = 16;
  /// How long to leave the door alone when the process has no descriptor for a visitor.
  static constexpr std::chrono::milliseconds kBackOff{100};

  /// For the job of this name; tells `word`. Throws Error{internal} where the name is taken.
  Door(const std::string& job_name, std::string word);

  /// Readable when somebody is waiting.
  int fd() const { return listener_.get(); }
  /// Tells the word to those who wait and belong to this user, to kVisitorsPerTurn at most; the
  /// others are hung up on. False when it could not take a connection: call again after kBackOff.
  bool answer();

 private:
  FileDescriptor listener_;
  std::string word_;
  LimitedLog strangers_{1};
  LimitedLog failures_{1};
};

/// What rank 0 says at its door, which may open later than this is asked. Throws Error{timed_out},
/// Error{unauthorized} where another user answers.
std::string ask_at_door(const std::string& job_name, const StartDeadline& deadline);

}  // namespace hvd
