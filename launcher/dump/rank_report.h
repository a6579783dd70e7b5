// What is known of one rank of a job: what its process told, and what the kernel shows of it. The
// ranks of another host are sent as JSON. Values; pure.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/transport/board_state.h"
#include "core/transport/process_watch.h"
#include "core/transport/rank_board.h"

namespace hvd::launcher {

struct Frame {
  std::string file{};
  int line = 0;
  std::string function{};
  std::string source{};  ///< the text of the line; empty: not known
  bool operator==(const Frame&) const = default;
};

struct RankReport {
  int rank = -1;  ///< negative: it has none, as a new worker of an elastic job before it joins
  std::string host{};
  std::string worker{};        ///< in an elastic job, its HOROVOD_WORKER
  int process = 0;             ///< 0: it has ended
  char run_state = '?';        ///< of its main thread, as in /proc/<pid>/stat
  bool outlives_main = false;  ///< its main thread has ended, and other threads run on
  /// What its main thread waits for in the kernel, for example "read of /data/x" or "nfs_wait";
  /// empty: nothing is known.
  std::string kernel{};
  bool is_reached = true;  ///< false: its host does not answer, so nothing is known
  bool has_board = false;  ///< it has imported horovod
  RankStage stage = RankStage::before_init;
  std::chrono::milliseconds stage_age{};
  bool answers = false;             ///< its main thread has taken the signal
  bool holds_gil = false;           ///< its main thread, when it took the signal
  std::vector<Frame> gil_holder{};  ///< of another thread that is blocked and holds the GIL
  std::optional<BoardState> state{};
  /// The main thread's, the innermost frame first; from py-spy if it does not answer.
  std::vector<Frame> stack{};
  bool operator==(const RankReport&) const = default;

  bool is_stopped() const { return is_stopped_by_signal() || run_state == 't'; }
  bool is_stopped_by_signal() const { return run_state == kStoppedBySignal; }
  bool has_ended() const {
    return is_reached && (process == 0 || (run_state == 'Z' && !outlives_main));
  }
};

/// The stack that a thread has written to the stack file of its process.
struct WrittenStack {
  bool is_main = false;
  bool holds_gil = false;
  std::vector<Frame> frames{};
};
/// Those in the file.
std::vector<WrittenStack> parse_stacks(std::string_view text);

/// Returns the frame to name first: the innermost one that is neither of Python's library nor of an
/// installed package. nullptr if there are no frames.
const Frame* place_in(const std::vector<Frame>& stack);
/// "train.py:30 in step".
std::string to_text(const Frame& frame);

/// Throws an exception of nlohmann::json unless it is an integer: the conversion of a double that
/// is too large for one is not defined.
int64_t integer_of(const nlohmann::json& json);

nlohmann::json to_json(const RankReport& report);
/// Throws an exception of nlohmann::json if malformed.
RankReport report_from_json(const nlohmann::json& json);

}  // namespace hvd::launcher
