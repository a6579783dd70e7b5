// Runs `horovodrun --dump-host`, which asks the ranks of this host what they wait for, or
// `--states-of-host`, which asks only the kernel. It is a process of its own, since the first takes
// up to a second, and both may hang on a file system.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "launcher/process/piped_child.h"
#include "launcher/worker/question.h"

namespace hvd::launcher {

/// Owned and used by one thread; never blocks.
class DumpRun {
 public:
  /// `supervisor`: of the ranks. `defaults` outlives this. Throws Error{internal} if no process can
  /// be made.
  DumpRun(pid_t supervisor, Question question, const ProcessDefaults& defaults);

  Question question() const { return question_; }
  /// Readable when take() has something to do.
  int fd() const { return events_.get(); }
  /// Returns what it has printed once it has ended: a JSON array; empty if it has failed.
  std::optional<std::string> take();

 private:
  bool read();

  const Question question_;
  FileDescriptor events_;
  std::unique_ptr<PipedChild> child_;
  std::string printed_;
};

}  // namespace hvd::launcher
