// What a rank tells about itself on request: which operations it waits for, what it has submitted
// last, and which ranks it does not reach. Its engine writes it into the board of the process
// (rank_board.h); horovodrun
// --dump reads it. Values; pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"

namespace hvd {

/// An operation that is not complete.
struct PendingOperation {
  std::string name{};
  std::string what{};  ///< kind, dtype and shapes, for example "allreduce float32 [4, 2]"
  std::vector<int32_t> between{};  ///< the ranks that take part, ascending; empty: all
  std::chrono::milliseconds age{};
  bool is_agreed = false;  ///< all its ranks have submitted it
  bool is_call = false;    ///< on a blocking group, or one that makes a group
  bool operator==(const PendingOperation&) const = default;
};

struct PastOperation {
  std::string name{};
  std::string what{};
  std::chrono::milliseconds age{};  ///< since its submission; of a failure: since then
  bool operator==(const PastOperation&) const = default;
};

/// A rank whose host does not acknowledge what was sent to it.
struct SilentPeer {
  int32_t rank = 0;
  std::chrono::milliseconds silence{};  ///< since anything came from there
  bool operator==(const SilentPeer&) const = default;
};

struct BoardState {
  int32_t rank = 0;
  int32_t size = 1;
  uint32_t generation = 0;
  uint64_t step = 0;     ///< calls of the optimizer's step(), if the framework counts them
  uint64_t batches = 0;  ///< agreed so far; all ranks agree on the same ones in the same order
  bool has_joined = false;
  bool has_ended = false;  ///< this generation of the job
  /// Calls first, then operations, the oldest first; at most kMaxPendingInState.
  std::vector<PendingOperation> pending{};
  uint64_t more_pending = 0;          ///< how many others there are
  std::vector<PastOperation> last{};  ///< submissions, the latest first
  std::string last_failure{};         ///< the text of the last operation that failed
  std::chrono::milliseconds since_failure{};
  std::vector<SilentPeer> silent{};  ///< ascending by rank, at most kMaxSilentInState
  bool operator==(const BoardState&) const = default;
};

inline constexpr size_t kMaxPendingInState = 100;
inline constexpr size_t kMaxLastInState = 8;
inline constexpr size_t kMaxSilentInState = 100;

/// Longer names and texts are cut.
ByteVector to_bytes(const BoardState& state);
/// Throws Error{internal} if malformed.
BoardState read_board_state(ConstBytes bytes);

}  // namespace hvd
