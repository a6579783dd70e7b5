// How the output of many ranks becomes one readable stream. Pure: bytes in, bytes out.
//
// Lines end at \n, \r or \r\n and come out whole behind a prefix. A rank's unfinished line waits
// until it is finished, until the rank has been silent for a while (a prompt), or until the rank
// ends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace hvd::job {

enum class Stream : uint8_t { out, err };
inline constexpr int kStreams = 2;

/// One line or a part of one. `text` includes the line's end.
struct Piece {
  std::string text;
  bool begins = true;  ///< first of its line
  bool ends = true;    ///< last of its line
  bool operator==(const Piece&) const = default;
};

/// Cuts the bytes of one stream of one rank into lines.
class LineCutter {
 public:
  /// A longer line is passed on in parts, so that a rank that never ends one cannot fill the
  /// memory.
  static constexpr size_t kLimit = size_t{1} << 20;

  void add(std::string_view bytes, std::vector<Piece>& pieces);
  /// What is unfinished, as far as its characters are whole.
  void flush_silent(std::vector<Piece>& pieces);
  /// All that is left; the stream has ended.
  void finish(std::vector<Piece>& pieces);
  bool has_unfinished() const { return !rest_.empty(); }

 private:
  void emit(size_t bytes, bool ends, std::vector<Piece>& pieces);

  std::string rest_;    ///< after the last line's end
  bool begun_ = false;  ///< a part of the current line is out already
  size_t scanned_ = 0;  ///< bytes of rest_ that are known to hold no line's end
};

/// Writes pieces of several sources onto one console, so that no line is torn: when another source
/// writes while a line is unfinished, the line is broken off, and its rest gets a prefix of its
/// own.
class ConsoleLines {
 public:
  void write(int source, const Piece& piece, std::string_view prefix, std::string& out);

 private:
  std::optional<int> open_{};  ///< the source whose unfinished line the cursor is on
};

/// The last lines of a rank, for the report of its failure.
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

}  // namespace hvd::job
