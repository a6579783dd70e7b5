// The part of a launch that answers `horovodrun --dump` and SIGQUIT: collects what the ranks of all
// hosts tell. horovodrun --dump connects to an abstract unix socket of the launcher; the kernel
// tells both who the other is.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/socket.h"
#include "launcher/dump/gathered.h"
#include "launcher/job.h"
#include "launcher/links.h"
#include "launcher/stream/output.h"

namespace hvd::launcher {

/// Owned and used by the launcher's only thread; never blocks.
class DumpPart {
 public:
  /// How long hosts may take to answer.
  static constexpr std::chrono::seconds kPatience{3};
  /// Others wait in the queue of the socket.
  static constexpr size_t kMaxVisitors = 16;

  /// All references outlive this. Without a socket, only SIGQUIT asks for dumps.
  DumpPart(const Job& job, const Assignment& assignment, Links& links, Output& output);

  /// Readable while someone waits in its queue; -1: there is no socket.
  int fd() const { return listener_.get(); }
  /// Takes those who have connected, a bounded number. Call it in every turn, after step(), which
  /// makes room for those who wait.
  void take_visitors(TimePoint now);
  /// Writes the dump to standard error when it is complete.
  void show(TimePoint now);
  /// Looks at what a worker has written to its standard error. After a stall report it writes the
  /// cause to standard error.
  void look_for_stall(std::string_view output, TimePoint now);
  /// Writes to standard error what the ranks wait for, if they do.
  void show_cause(TimePoint now);
  /// Looks for workers whose processes a signal has stopped, without disturbing the others.
  /// take_stopped() returns them once, after a step().
  void look_for_stopped(TimePoint now);
  std::optional<std::vector<WorkerId>> take_stopped() { return std::exchange(stopped_, {}); }
  void take(const std::vector<HostDump>& dumps);
  /// Ends a dump that is complete or has taken too long.
  void step(TimePoint now);
  std::optional<TimePoint> deadline() const { return until_; }

 private:
  void want(Question question, TimePoint now);
  void begin(TimePoint now);
  void answer(const Gathered& all);
  void show(std::string_view text);
  Gathered gathered() const;
  void place(RankReport& report) const;
  void add_unreached(std::vector<RankReport>& reports) const;
  void add_ended(const std::vector<int>& silent, std::vector<RankReport>& reports) const;

  const Job& job_;
  const Assignment& assignment_;
  Links& links_;
  Output& output_;
  FileDescriptor listener_;
  std::optional<TimePoint> until_;  ///< while a dump is collected
  Question question_{};             ///< of the dump that is collected
  std::optional<Question> next_;    ///< wanted after it: the other one
  std::set<int> missing_;           ///< hosts that have not answered
  std::vector<HostDump> dumps_;
  std::vector<Visitor> visitors_;  ///< get the dump
  /// The last one. Visitors get the number of the descriptor, and open it through /proc, since a
  /// long text does not fit into the buffer of a socket.
  FileDescriptor last_;
  bool shows_ = false;
  bool shows_cause_ = false;
  std::optional<std::vector<WorkerId>> stopped_;
};

}  // namespace hvd::launcher
