// Small messages in shared memory without a conversation (the eager protocol of message passing):
// every rank posts what it has for all others in one go, flag beside data, and looks at what they
// posted. Owned by the HostSegment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/group/doorbells.h"

namespace hvd {

/// The beginning of a slot, in shared memory. Up to sizeof(beside) bytes lie in the cache line of
/// their flag, so that both arrive together; more lie behind it.
struct EagerSlot {
  /// Exchange and bytes, as EagerSlots::word_of. Partner: EagerSlots::has_posted
  alignas(64) std::atomic<uint64_t> posted;
  std::array<std::byte, 56> beside;
};
static_assert(sizeof(EagerSlot) == 64);

/// Seen from one rank; owned and driven by one thread. All ranks of the host go through the same
/// exchanges in the same order, and each posts in every one of them, if only nothing: a message at
/// once or piece by piece. Never blocks.
///
/// What a rank posts in exchange n lies in its slot n % kSlots. It is overwritten in exchange n +
/// kSlots, when everybody has posted in exchange n + 1 and so is done with n. Ranks that wait for
/// each other's posts know that without asking; one that only posts (the root of a broadcast) can
/// be kSlots - 1 ahead.
class EagerSlots {
 public:
  static constexpr uint64_t kSlots = 2;  // few, so that they stay in the cache
  static constexpr size_t kMostBytes = MiB;

  /// `areas[r]` is that of rank r: area_bytes(most_bytes), aligned to a cache line, made by
  /// make(). `doorbells` outlives this.
  EagerSlots(std::vector<std::byte*> areas, size_t most_bytes, Doorbells& doorbells);
  static size_t area_bytes(size_t most_bytes) { return kSlots * (sizeof(EagerSlot) + most_bytes); }
  /// Makes the slots of one rank in memory of that size, before any rank looks.
  static void make(std::byte* area, size_t most_bytes);

  int local_rank() const { return doorbells_.local_rank(); }
  int local_ranks() const { return static_cast<int>(areas_.size()); }
  /// Of one message; a multiple of a cache line.
  size_t most_bytes() const { return most_bytes_; }

  /// Room for the message of this rank in this exchange; nullptr while a peer still reads what lies
  /// there.
  std::byte* reserve(size_t message_bytes);
  /// Shows the first `bytes` of the message to everybody, and wakes who sleeps.
  void post(size_t bytes);
  /// The message of `rank` in this exchange, known to all to have `message_bytes`, once at least
  /// the first `bytes` of it are there; else nullptr. Valid until finish().
  const std::byte* view(int rank, size_t message_bytes, size_t bytes);
  /// This rank has posted all of its message and seen what it wanted. The next exchange begins.
  void finish() { ++exchange_; }

 private:
  static uint64_t word_of(uint64_t exchange, size_t bytes) { return exchange << 24 | bytes; }
  EagerSlot& slot(int rank, uint64_t exchange) const {
    return *reinterpret_cast<EagerSlot*>(areas_[rank] +
                                         exchange % kSlots * (sizeof(EagerSlot) + most_bytes_));
  }
  static std::byte* content(EagerSlot& slot, size_t message_bytes) {
    if (message_bytes <= slot.beside.size()) return slot.beside.data();
    return reinterpret_cast<std::byte*>(&slot) + sizeof(EagerSlot);
  }
  bool has_posted(int rank, uint64_t exchange, size_t bytes);

  std::vector<std::byte*> areas_;
  size_t most_bytes_;
  Doorbells& doorbells_;
  uint64_t exchange_ = 1;
  std::vector<uint64_t> seen_;  ///< [rank] what the shared words said when last looked at
};

}  // namespace hvd
