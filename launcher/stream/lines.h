// Merges the output of many ranks into one readable stream. Pure: bytes in, bytes out.
//
// Lines end at
// , \r or \r
//  and are written whole after a prefix. An unfinished line of a rank waits until it is finished,
// until the rank has been silent for a while (a prompt), or until the rank ends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace hvd::launcher {

enum class Stream : uint8_t { out, err };
inline constexpr int kStreams = 2;

/// A line or a part of one. `text` includes the end of the line.
struct Piece {
  std::string text;
  bool begins = true;  ///< first part of its line
  bool ends = true;    ///< last part of its line
  bool operator==(const Piece&) const = default;
};

/// Splits the bytes of one stream of one rank into lines.
class LineCutter {
 public:
  /// A longer line is passed on in parts, which limits the memory per rank.
  static constexpr size_t kLimit = size_t{1} << 20;

  void add(std::string_view bytes, std::vector<Piece>& pieces);
  /// Returns the unfinished line, up to its last whole character.
  void flush_silent(std::vector<Piece>& pieces);
  /// Returns the rest; the stream has ended.
  void finish(std::vector<Piece>& pieces);
  bool has_unfinished() const { return !rest_.empty(); }

 private:
  void emit(size_t bytes, bool ends, std::vector<Piece>& pieces);

  std::string rest_;    ///< bytes after the last end of a line
  bool begun_ = false;  ///< a part of the current line was already returned
  size_t scanned_ = 0;  ///< bytes of rest_ known to contain no end of a line
};

/// Writes pieces of several sources to one console without mixing lines: if another source writes
/// while a line is unfinished, the line is broken off, and its rest gets its own prefix.
class ConsoleLines {
 public:
  void write(int source, const Piece& piece, std::string_view prefix, std::string& out);

 private:
  std::optional<int> open_{};  ///< the source whose unfinished line is at the cursor
};

/// Keeps the last lines of a rank, for the report of its failure.
class Tail {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kLineBytes = 500;

  void add(const Piece& piece);
  std::vector<std::string> lines() const;

 private:
  std::deque<std::string> lines_;
  bool open_ = false;  ///< the last line is unfinished
};

}  // namespace hvd::launcher
