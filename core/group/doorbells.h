// What every rank of a host tells the others in a few words of shared memory, and how they wake
// each other: a rank that is about to sleep raises a flag, and whoever has news for it writes to
// its eventfd if the flag is up. Owned by the HostSegment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/transport/file_descriptor.h"

namespace hvd {

/// One a rank, in shared memory. Progress counters are keys of Tickets (staging.h) and only grow. A
/// word has one writer, its rank, except `asleep`, which whoever wakes the rank takes down.
struct RankState {
  alignas(64) std::atomic<uint64_t> published;  ///< partner: Staging::view
  alignas(64) std::atomic<uint64_t> released;   ///< partner: Staging::is_released
  alignas(64) std::atomic<uint32_t> asleep;     ///< partner: Doorbells::wake
  /// 1 + the local rank whose release this rank waits for, or 0. Partner: Staging::release
  std::atomic<uint32_t> needs_release_of;
  std::atomic<uint32_t> parted;  ///< partner: Doorbells::said_goodbye
  /// 1 + the local rank for whose sake this rank has given up a call, or 0. Partner:
  /// Doorbells::why_given_up
  std::atomic<uint32_t> gave_up;
  alignas(64) std::atomic<uint32_t> writes;  ///< partner: Doorbells::is_writing
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(RankState) == 256);

/// Seen from one rank; owned and driven by one thread.
class Doorbells {
 public:
  /// `states[r]` belongs to local rank r and outlives this.
  Doorbells(std::vector<RankState*> states, int local_rank)
      : states_(std::move(states)), bells_(states_.size()), local_rank_(local_rank) {}

  int local_rank() const { return local_rank_; }
  int local_ranks() const { return static_cast<int>(states_.size()); }
  RankState& state(int local_rank) { return *states_[local_rank]; }

  /// The eventfd that `local_rank` waits on. Nobody wakes it before, so it must not sleep before.
  void set(int local_rank, FileDescriptor eventfd) { bells_[local_rank] = std::move(eventfd); }

  bool is_asleep(int local_rank) const {
    return states_[local_rank]->asleep.load(std::memory_order_seq_cst) != 0;
  }
  /// Wakes `local_rank` if it sleeps. Called after the seq_cst store that it shall see: the sleeper
  /// looks for news after raising its flag, we look at its flag after storing the news, so one of
  /// us sees the other.
  void wake(int local_rank) {
    if (is_asleep(local_rank)) ring(local_rank);
  }
  /// All but this rank, as wake().
  void wake_others() {
    for (int rank = 0; rank < local_ranks(); ++rank)
      if (rank != local_rank_) wake(rank);
  }
  /// Partner: is_asleep, on the ranks that have news for this one.
  void set_asleep(bool asleep) {
    states_[local_rank_]->asleep.store(asleep ? 1 : 0, std::memory_order_seq_cst);
  }

  /// This rank has ended in good order: from now on the end of its process is no loss.
  void say_goodbye() { states_[local_rank_]->parted.store(1, std::memory_order_release); }
  bool said_goodbye(int local_rank) const {  // partner: say_goodbye
    return states_[local_rank]->parted.load(std::memory_order_acquire) != 0;
  }

  /// This rank leaves a call in the middle, in which peers may still read its memory or wait for
  /// it, and wakes them. From the moment this returns, what they read there may change; what they
  /// write there goes on until is_writing() says no of each of them, or their process has ended.
  /// They are told the rank that was the first to give up: as peers tell, or else `first`. What has
  /// been told once stays.
  void give_up(int first);
  /// The rank that was the first to do so, as far as peers tell; -1 as long as there is none.
  int who_has_given_up() const;
  /// The rank for whose sake `local_rank` has given up, or -1.
  /// Looked at after reading: if it is -1, what was read is what the rank had offered. Between
  /// the two the kernel has returned, which keeps their order; seq_cst: after raising the own flag.
  int why_given_up(int local_rank) const {  // partner: give_up
    return static_cast<int>(states_[local_rank]->gave_up.load(std::memory_order_seq_cst)) - 1;
  }
  /// Before this rank writes to memory of a peer, and after it. Between the first and the write it
  /// looks at why_given_up(): it looks after raising its flag, who gives up looks at that flag
  /// after raising his own, so one of the two sees the other.
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
