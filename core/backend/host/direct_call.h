// One operation of ranks that share a host and may read and write each other's memory: all tell
// where their tensors lie, each takes what it wants straight from there, and puts straight there
// what others want and it has at hand. No staging and no plan; what it costs are the kernel's
// copies and two exchanges: one of addresses, and one that says who is done. Owned by the caller,
// for one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"
#include "core/base/bytes.h"
#include "core/group/eager_slots.h"
#include "core/group/peer_memory.h"

namespace hvd {

/// Any Transfer. Driven by one thread. `slots` and `memory`, of a host whose ranks are those of the
/// group, and the memory of the task outlive it. The task has no prescale.
class DirectCall {
 public:
  /// Whether the process of a local rank has ended. Does not throw.
  using HasEnded = std::function<bool(int)>;

  /// `scratch`: kScratchBytes, for what is to be reduced.
  DirectCall(EagerSlots& slots, const PeerMemory& memory, const HasEnded& has_ended,
             MutableBytes scratch, const EagerTask& task);
  /// Of a call that is not done: tells the peers, so that it fails on all that do not have their
  /// result yet, and waits until none of them is in the middle of a write to the output. That takes
  /// some hundred microseconds at most, unless a process has been stopped.
  ~DirectCall();
  DirectCall(const DirectCall&) = delete;
  DirectCall& operator=(const DirectCall&) = delete;

  /// Of all peers together: as much as is still in a core's cache when it is added up.
  static constexpr size_t kScratchBytes = 256 * KiB;

  /// Never blocks; moves a piece and returns. `done` when the result is here and nobody reads or
  /// writes memory of this rank any more; `waiting` also when the call cannot go on, see trouble().
  Run::Progress advance();

  /// Why this call will never be done.
  struct Trouble {
    int rank = 0;   ///< local
    int error = 0;  ///< errno, by which its memory could not be used; 0: it has given up the call
  };
  const std::optional<Trouble>& trouble() const { return trouble_; }

 private:
  enum class Stage : uint8_t { offer, move, withdraw, keep, part, done };
  /// Where the tensors of a rank lie.
  struct Offer {
    uint64_t input = 0;
    uint64_t output = 0;
  };

  bool is_root() const;
  Stretch stretch_to_move() const;
  Stretch given() const;
  bool finds_who_gave_up();
  Run::Progress go_on();
  Run::Progress post(const Offer& offer, Stage next);
  void begin(Stage stage);
  Run::Progress move();
  Run::Progress take_piece();
  Run::Progress give_piece();
  Run::Progress reduce_piece();
  bool give_to_all(Stretch piece);
  void keep_own();
  bool all_have_offered();
  Stretch next_piece(size_t most) const;
  void moved(Stretch piece);
  bool read(int rank, std::byte* to, uint64_t from, size_t bytes);
  bool write(int rank, uint64_t to, const std::byte* from, size_t bytes);
  bool succeeds(int rank, int error);
  bool is_met_by(int rank) const;
  bool all_have_withdrawn();

  EagerSlots& slots_;
  const PeerMemory& memory_;
  const HasEnded& has_ended_;
  const MutableBytes scratch_;
  const EagerTask& task_;
  const int own_, ranks_;
  const Stretch wanted_;  ///< of each source
  const Stretch mine_;    ///< what this rank moves, of each source or to each target
  Stage stage_ = Stage::offer;
  std::optional<Trouble> trouble_{};
  int dealt_with_ = 0;  ///< in this stage: ranks
  size_t moved_ = 0;    ///< of mine_: bytes of the next one; of a reduction, of all
};

}  // namespace hvd
