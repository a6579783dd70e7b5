// What the ranks write, on its way to the user: prefixed lines on the console, plain bytes in
// files, the last lines of each rank kept for the report of its failure.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "job/stream/console.h"
#include "job/stream/lines.h"

namespace hvd::job {

struct OutputOptions {
  int ranks = 1;
  bool timestamps = false;
  std::optional<std::string> folder{};
  bool one_terminal = false;  ///< both consoles are the same screen
};

class Output {
 public:
  /// An unfinished line is shown after this long without more of it.
  static constexpr std::chrono::milliseconds kSilence{200};
  /// Above this, what comes waits in the ranks' pipes, and the ranks with it.
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  /// Makes the folder and its files. Throws Error{invalid_argument} naming what could not be made.
  Output(const OutputOptions& options, int out_fd, int err_fd);

  void received(int rank, Stream stream, std::string_view bytes, TimePoint now);
  void ended(int rank, Stream stream);
  /// Keeps back what the rank writes to its standard error, until release().
  void hold(int rank);
  void release(int rank);
  /// A line of the launcher's own.
  void say(std::string_view line);

  /// Shows what has been unfinished for long.
  void pass(TimePoint now);
  std::optional<TimePoint> deadline() const;

  std::vector<std::string> tail(int rank) const { return at(rank).tail.lines(); }
  Console& console(Stream stream) { return consoles_[static_cast<size_t>(stream)]; }
  bool is_full() const;

 private:
  struct Source {
    LineCutter cutter;
    std::optional<TimePoint> unfinished_since{};
    FileDescriptor file;
  };
  struct Rank {
    std::array<Source, kStreams> sources;
    Tail tail;
    bool held = false;
    std::vector<Piece> kept;  ///< of its standard error
    std::array<std::string, kStreams> prefixes;
  };

  void open_files(const std::string& folder);
  /// Of one that cannot be written; errno says why.
  void end_file(int rank, Stream stream);
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  void pass_on(int rank, Stream stream, std::vector<Piece> pieces);
  void show(int rank, Stream stream, const Piece& piece);
  ConsoleLines& lines(Stream stream) {
    return lines_[one_terminal_ ? 0 : static_cast<size_t>(stream)];
  }

  bool timestamps_;
  bool one_terminal_;
  bool file_ended_ = false;  ///< the user has been told of one
  std::vector<Rank> ranks_;
  std::array<Console, kStreams> consoles_;
  std::array<ConsoleLines, kStreams> lines_;
  int unfinished_ = 0;  ///< sources that have an unfinished line
};

}  // namespace hvd::job
