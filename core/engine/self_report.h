// Tells what this rank waits for and what it has submitted last, when the board of the process is
// asked (horovodrun --dump).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/group_calls.h"
#include "core/engine/process_sets.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/transport/board_state.h"
#include "core/transport/channel_set.h"
#include "core/transport/rank_board.h"

namespace hvd {

/// For the holder of the progress token. Until it is asked, a submission costs a copy of its name.
class SelfReport {
 public:
  /// `board` may be nullptr: it is never asked. All must outlive this.
  SelfReport(RankBoard* board, const Clock& clock, const GroupCalls& calls)
      : board_(board), clock_(clock), calls_(calls) {}

  /// Requests are about to be accepted.
  void begin_turn() { now_ = clock_.now(); }
  /// A request is accepted. Sets `submitted`.
  void accepted(Request& request);
  void failed(const std::string& why);
  void batch_agreed() { ++batches_; }

  struct Facts {
    int rank = 0;
    int size = 1;
    uint32_t generation = 0;
    bool has_ended = false;
    bool has_joined = false;
  };
  bool is_asked() const { return board_ != nullptr && board_->is_asked(); }
  /// `waiting`: the requests between acceptance and agreement. `links`: to other ranks.
  void tell(const Facts& facts, const std::map<uint64_t, Request>& waiting, Runner& runner,
            const ProcessSets& sets, const std::vector<ChannelSet*>& links);

 private:
  static std::vector<std::pair<const Request*, bool>> pending(
      const std::map<uint64_t, Request>& waiting, Runner& runner);

  struct Past {
    std::string name{};
    OperationKind kind{};
    TimePoint submitted{};
  };

  RankBoard* const board_;
  const Clock& clock_;
  const GroupCalls& calls_;
  TimePoint now_{};
  uint64_t batches_ = 0;
  uint64_t accepted_ = 0;
  std::array<Past, kMaxLastInState> last_{};  ///< a ring
  std::string failure_{};
  TimePoint failed_at_{};
};

}  // namespace hvd
