// Sends the output of the workers to the user: prefixed lines to the console, unchanged bytes to
// files. Keeps the last lines of each worker for the report of its failure. Prefixes show the rank
// that a worker has in the current generation.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "launcher/stream/console.h"
#include "launcher/stream/lines.h"
#include "launcher/worker/assignment.h"

namespace hvd::launcher {

struct OutputOptions {
  bool timestamps = false;
  std::optional<std::string> folder{};
  bool one_terminal = false;  ///< both consoles are the same screen
};

class Output {
 public:
  /// An unfinished line is shown after this time without further output.
  static constexpr std::chrono::milliseconds kSilence{200};
  /// Above this, output stays in the workers' pipes, which blocks the workers.
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  Output(OutputOptions options, int out_fd, int err_fd);

  /// Sets the ranks of the workers. Creates the folders and files of new ranks. Throws
  /// Error{invalid_argument} naming the file that could not be created. A worker must have been in
  /// an assignment, or be expected, before its output is received.
  void assign(const Assignment& assignment);

  /// Accepts output of a worker that has no rank yet.
  void expect(const WorkerId& worker);

  void received(const WorkerId& worker, Stream stream, std::string_view bytes, TimePoint now);
  void ended(const WorkerId& worker, Stream stream);
  /// True once both streams of all workers have ended and no output is held.
  void end_all();
  /// Holds back the standard error of the worker, until release().
  void hold(const WorkerId& worker);
  void release(const WorkerId& worker);
  /// Writes a line of the launcher itself.
  void say(std::string_view line);

  /// Shows lines that have been unfinished for too long.
  void pass(TimePoint now);
  std::optional<TimePoint> deadline() const;

  std::vector<std::string> tail(const WorkerId& worker) const {
    return workers_.at(worker).tail.lines();
  }
  Console& console(Stream stream) { return consoles_[static_cast<size_t>(stream)]; }
  bool is_full() const;
  /// Writes all remaining output. Blocks until then. Returns false if output of the workers could
  /// not be written to the consoles or to files, which was reported to the user.
  bool finish();

 private:
  struct Source {
    LineCutter cutter;
    std::optional<TimePoint> unfinished_since{};
    bool ended = false;
  };
  struct Worker {
    int number = 0;  ///< unique
    int rank = 0;    ///< the most recent one
    std::array<Source, kStreams> sources{};
    Tail tail{};
    bool held = false;
    std::vector<Piece> kept{};  ///< held back, of its standard error
    std::array<std::string, kStreams> prefixes{};
    bool is_over() const { return sources[0].ended && sources[1].ended && !held; }
  };
  Worker& known(const WorkerId& id);
  static void set_prefixes(Worker& worker, const std::string& name);
  using Files = std::array<FileDescriptor, kStreams>;

  void open_files(int rank);
  void write_file(int rank, Stream stream, std::string_view bytes);
  /// Stops writing a file after an error, in errno.
  void end_file(int rank, Stream stream);
  void release(Worker& worker);
  void end(Worker& worker, Stream stream);
  void pass_on(Worker& worker, Stream stream, std::vector<Piece> pieces);
  void show(const Worker& worker, Stream stream, const Piece& piece);
  ConsoleLines& lines(Stream stream) {
    return lines_[options_.one_terminal ? 0 : static_cast<size_t>(stream)];
  }

  OutputOptions options_;
  size_t rank_digits_ = 0;   ///< in names of folders; 0: no assignment yet
  bool file_ended_ = false;  ///< the user was told about one
  std::map<WorkerId, Worker> workers_;
  std::map<int, Files> files_;  ///< by rank
  int next_number_ = 0;
  std::array<Console, kStreams> consoles_;
  std::array<ConsoleLines, kStreams> lines_;
  int unfinished_ = 0;  ///< sources with an unfinished line
};

}  // namespace hvd::launcher
