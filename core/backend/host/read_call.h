// One operation of ranks that share a host and may read each other's memory: all tell where their
// tensor lies, and each takes what it wants straight from there. No staging and no plan; what it
// costs are the kernel's copies and two or three exchanges of an address. Owned by the caller, for
// one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"
#include "core/base/bytes.h"
#include "core/group/eager_slots.h"
#include "core/group/peer_memory.h"

namespace hvd {

/// Any Transfer, though broadcasts are better copied once (decision 27). Driven by one thread. One
/// that is destroyed before it is done tells the peers, since they may be reading: then the call
/// fails on all that do not have their result yet. `slots` and `memory`, of a host whose ranks are
/// those of the group, and the memory of the task outlive it. The task has no prescale.
class ReadCall {
 public:
  /// `scratch`: kScratchBytes, for what is to be reduced.
  ReadCall(EagerSlots& slots, const PeerMemory& memory, MutableBytes scratch,
           const EagerTask& task);
  ~ReadCall();
  ReadCall(const ReadCall&) = delete;
  ReadCall& operator=(const ReadCall&) = delete;

  /// Of all peers together: as much as is still in a core's cache when it is added up.
  static constexpr size_t kScratchBytes = 256 * KiB;

  /// Never blocks; moves a piece and returns. `done` when the result is here and nobody reads from
  /// this rank any more; `waiting` also when the call cannot go on, see trouble().
  Run::Progress advance();

  /// Why this call will never be done.
  struct Trouble {
    int rank = 0;   ///< local
    int error = 0;  ///< errno, by which its memory could not be read; 0: it has given up the call
  };
  const std::optional<Trouble>& trouble() const { return trouble_; }

 private:
  enum class Stage : uint8_t { offer_input, take, offer_part, collect, withdraw, part, done };

  Run::Progress go_on();
  bool offer(const std::byte* memory);
  Run::Progress offered(bool offered, Stage next);
  Run::Progress take();
  Run::Progress take_of(int source);
  Run::Progress reduce_piece();
  bool see_all();
  bool read(int rank, std::byte* to, uint64_t from, size_t bytes);
  Run::Progress collect();
  bool all_are_done();
  Stretch share_of(int rank) const;
  void begin(Stage stage);

  EagerSlots& slots_;
  const PeerMemory& memory_;
  const MutableBytes scratch_;
  const EagerTask& task_;
  const int own_, ranks_;
  const Stretch wanted_;  ///< of each source
  const Stretch mine_;    ///< what this rank takes from the inputs: of an allreduce its share
  Stage stage_ = Stage::offer_input;
  std::optional<Trouble> trouble_{};
  int seen_ = 0;      ///< in this stage: ranks that are dealt with
  size_t moved_ = 0;  ///< and bytes of the next one; of a reduction, of all
  std::array<uint64_t, EagerSlots::kMostRanks> inputs_{};  ///< [rank] to be reduced
};

}  // namespace hvd
