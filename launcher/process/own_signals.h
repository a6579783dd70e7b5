// The signals that the launcher reads as events of its loop.
#pragma once

#include <signal.h>

#include <vector>

#include "core/transport/file_descriptor.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {

/// Owned and used by the one thread of the launcher.
class OwnSignals {
 public:
  /// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP, except ignored ones
  /// (nohup), and ignores SIGPIPE. Stores the previous settings in `defaults`.
  explicit OwnSignals(ProcessDefaults& defaults);
  OwnSignals(const OwnSignals&) = delete;
  OwnSignals& operator=(const OwnSignals&) = delete;

  /// Readable if a signal is pending.
  int fd() const { return signals_.get(); }
  /// Returns the pending signals. Never blocks.
  std::vector<int> take();
  /// Stops this process, as Ctrl-Z does, until it is continued. Returns at once if no process could
  /// continue it: the kernel does not stop an orphaned process group.
  void stop_here();
  /// Restores the default action of the signals, except SIGUSR1 and SIGUSR2, which are ignored.
  void give_back();

 private:
  const ProcessDefaults& defaults_;
  FileDescriptor signals_;
};

}  // namespace hvd::launcher
