// The timeline: events as a trace file in Chrome's JSON format, which chrome://tracing and Perfetto
// show. docs/timeline.md says what is in it.
//
// The file is a JSON array that is complete after every write: each write begins where the closing
// bracket stood and ends with a new one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/observe/observer.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// The file that `rank` writes when the user asked for `path`: rank 0 that one, rank 1 of
/// "a/trace.json" "a/trace.rank1.json".
std::string timeline_path(const std::string& path, int rank);

/// Owned by one thread at a time; take() is called by the Observer.
class Timeline final : public Sink {
 public:
  /// Opens the file and leaves what is in it. Throws Error{invalid_argument} when that fails.
  Timeline(std::string path, bool mark_cycles);

  /// Empties the file and begins the trace: time 0 is `start`, which the calendar calls
  /// `since_epoch`.
  void begin(TimePoint start, std::chrono::microseconds since_epoch);
  void take(std::span<const Event> events) override;

 private:
  /// The trace shows what has a name as a process of its own.
  struct Process {
    int pid = 0;
    std::vector<std::string> open;  ///< begun and not ended, outermost first
  };
  using Processes = std::map<std::pair<uint32_t, std::string>, Process>;
  /// Names beyond this are forgotten when they are not in use, and announced anew when they return:
  /// there are jobs where no name comes back.
  static constexpr size_t kMaxProcesses = size_t{1} << 16;

  void add(const Event& event);
  void add_to(Process& process, const Event& event);
  Process* process_of(const Event& event);
  void announce(const Process& process, const std::string& name);
  void begin_span(Process& process, const Event& event, std::string name,
                  const std::string& arguments = {});
  void end_span(Process& process, const Event& event, const std::string& arguments = {});
  void end_spans(Process& process, const Event& event, size_t left);
  int64_t microseconds(const Event& event) const;
  void line(const std::string& text);
  void write_lines();
  void give_up(const std::string& why);

  const std::string path_;
  const bool mark_cycles_;
  FileDescriptor file_;    ///< none: writing has failed, nothing more is tried
  int64_t end_bytes_ = 0;  ///< where the closing bracket stands
  std::string lines_;      ///< not written yet
  TimePoint start_{};
  Processes processes_;
  int last_pid_ = 0;
};

}  // namespace hvd
