// Per-rank state in shared memory and wake-ups between the ranks of a host. A rank raises a flag
// before it sleeps; a rank with news for it writes to its eventfd if the flag is set. Owned by the
// HostSegment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/transport/file_descriptor.h"

namespace hvd {

/// One per rank, in shared memory. Progress counters are keys of Tickets (staging.h) and only grow.
/// Only the owning rank writes its state, except `asleep`, which the waking rank clears.
struct RankState {
  alignas(64) std::atomic<uint64_t> published;  ///< partner: Staging::view
  alignas(64) std::atomic<uint64_t> released;   ///< partner: Staging::is_released
  alignas(64) std::atomic<uint32_t> asleep;     ///< partner: Doorbells::wake
  /// 1 + the local rank whose release this rank waits for, or 0. Partner: Staging::release
  std::atomic<uint32_t> needs_release_of;
  std::atomic<uint32_t> parted;  ///< partner: Doorbells::said_goodbye
  /// 1 + the local rank that caused this rank to abandon a call, or 0. Partner:
  /// Doorbells::why_given_up
  std::atomic<uint32_t> gave_up;
  alignas(64) std::atomic<uint32_t> writes;  ///< partner: Doorbells::is_writing
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(RankState) == 256);

/// The view of one rank; owned and used by one thread.
class Doorbells {
 public:
  /// `states[r]` is the state of local rank r and must outlive this.
  Doorbells(std::vector<RankState*> states, int local_rank)
      : states_(std::move(states)), bells_(states_.size()), local_rank_(local_rank) {}

  int local_rank() const { return local_rank_; }
  int local_ranks() const { return static_cast<int>(states_.size()); }
  RankState& state(int local_rank) { return *states_[local_rank]; }

  /// Sets the eventfd of `local_rank`. It must not sleep before all peers have set it.
  void set(int local_rank, FileDescriptor eventfd) { bells_[local_rank] = std::move(eventfd); }

  bool is_asleep(int local_rank) const {
    return states_[local_rank]->asleep.load(std::memory_order_seq_cst) != 0;
  }
  /// Wakes `local_rank` if it sleeps. Call it after the seq_cst store that the peer must see: the
  /// sleeper checks for news after raising its flag, and this rank checks the flag after storing
  /// the news, so at least one of them sees the other.
  void wake(int local_rank) {
    if (is_asleep(local_rank)) ring(local_rank);
  }
  /// Wakes all other ranks as wake() does.
  void wake_others() {
    for (int rank = 0; rank < local_ranks(); ++rank)
      if (rank != local_rank_) wake(rank);
  }
  /// Partner: is_asleep, on the ranks with news for this one.
  void set_asleep(bool asleep) {
    states_[local_rank_]->asleep.store(asleep ? 1 : 0, std::memory_order_seq_cst);
  }

  /// Marks a clean exit: afterwards the end of this process is not a loss.
  void say_goodbye() { states_[local_rank_]->parted.store(1, std::memory_order_release); }
  bool said_goodbye(int local_rank) const {  // partner: say_goodbye
    return states_[local_rank]->parted.load(std::memory_order_acquire) != 0;
  }

  /// Abandons a call in progress, in which peers may still read this rank's memory or wait for it,
  /// and wakes all peers. After the return, data that peers read there may change. Peers may still
  /// write there until is_writing() returns false for each of them or their process has ended.
  /// Publishes the rank that gave up first: the one that peers report, else `first`. The published
  /// value never changes.
  void give_up(int first);
  /// Returns the rank that gave up first, as peers report it; -1 if none has.
  int who_has_given_up() const;
  /// Returns the rank that caused `local_rank` to give up, or -1. Call it after reading that rank's
  /// memory: if it returns -1, the data read was valid. The system call in between keeps the order.
  /// seq_cst: ordered after raising the own flag.
  int why_given_up(int local_rank) const {  // partner: give_up
    return static_cast<int>(states_[local_rank]->gave_up.load(std::memory_order_seq_cst)) - 1;
  }
  /// Raises or clears the flag around writes to a peer's memory. After raising it, the writer calls
  /// why_given_up() before it writes. The writer checks the peer after raising its flag, and a rank
  /// that gives up checks the writer after raising its own, so at least one of them sees the other.
  void set_writing(bool writing) {
    states_[local_rank_]->writes.store(writing ? 1 : 0, std::memory_order_seq_cst);
  }
  bool is_writing(int local_rank) const {  // partner: set_writing
    return states_[local_rank]->writes.load(std::memory_order_seq_cst) != 0;
  }

 private:
  void ring(int local_rank);

  std::vector<RankState*> states_;
  std::vector<FileDescriptor> bells_;
  int local_rank_;
};

}  // namespace hvd
