// One operation by cross-memory attach (CMA) among ranks of one host. All ranks publish the
// addresses of their tensors. Each rank reads from or writes to the tensors of its peers with a
// single copy by the kernel. There is no staging and no plan. Besides the copies, a call takes two
// exchanges: one of addresses and one of completion. The caller owns it, for one call.
// Measurements: docs/decisions/0027.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/backend/backend.h"
#include "core/base/bytes.h"
#include "core/blocking/tensor_task.h"
#include "core/group/eager_buffers.h"
#include "core/group/peer_memory.h"

namespace hvd {

/// Supports every operation of a TensorTask without prescale. Driven by one thread. `slots`,
/// `memory`, `has_ended`, `scratch` and the memory of the task must outlive it. The ranks of
/// `slots` are the ranks of the group.
class CrossMemoryCall {
 public:
  /// Returns whether the process of a local rank has ended. Does not throw.
  using HasEnded = std::function<bool(int)>;

  /// `scratch`: kScratchBytes, for the inputs of a reduction.
  CrossMemoryCall(EagerBuffers& slots, const PeerMemory& memory, const HasEnded& has_ended,
                  MutableBytes scratch, const TensorTask& task);
  /// Gives up a call that is not done: it fails on all ranks that do not have their result yet.
  /// Blocks while a peer is writing to the output, i.e. for some hundred microseconds at most
  /// unless the process of that peer is stopped.
  ~CrossMemoryCall();
  CrossMemoryCall(const CrossMemoryCall&) = delete;
  CrossMemoryCall& operator=(const CrossMemoryCall&) = delete;

  /// For the data of all peers together; small enough to stay in the cache of a core.
  static constexpr size_t kScratchBytes = 256 * KiB;

  /// Moves at most one piece. Never blocks. Returns `done` when the result is complete and no peer
  /// accesses the memory of this rank any more. Also returns `waiting` if the call cannot continue,
  /// see trouble().
  Progress advance();

  /// Why a call cannot continue.
  struct Trouble {
    int rank = 0;   ///< the local rank that caused it
    int error = 0;  ///< errno of the access to its memory; 0: the rank has given up the call
  };
  const std::optional<Trouble>& trouble() const { return trouble_; }

 private:
  enum class Stage : uint8_t { offer, move, withdraw, keep, part, done };
  /// The addresses of the tensors of a rank.
  struct Offer {
    uint64_t input = 0;
    uint64_t output = 0;
  };

  bool is_root() const;
  Stretch stretch_to_move() const;
  Stretch given() const;
  bool finds_who_gave_up();
  Progress go_on();
  Progress post(const Offer& offer, Stage next);
  void begin(Stage stage);
  Progress move();
  Progress take_piece();
  Progress give_piece();
  Progress reduce_piece();
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

  EagerBuffers& slots_;
  const PeerMemory& memory_;
  const HasEnded& has_ended_;
  const MutableBytes scratch_;
  const TensorTask& task_;
  const int own_, ranks_;
  const Stretch wanted_;  ///< the range that this rank needs of each source
  const Stretch mine_;    ///< the range that this rank moves from each source or to each target
  Stage stage_ = Stage::offer;
  std::optional<Trouble> trouble_{};
  int dealt_with_ = 0;  ///< ranks completed in this stage
  size_t moved_ = 0;    ///< bytes of mine_ moved for the next rank; in a reduction, for all ranks
};

}  // namespace hvd
