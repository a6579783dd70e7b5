// Small messages in shared memory without a conversation (the eager protocol of message passing):
// every rank posts what it has for all others in one go, flag beside data, and looks at what they
// posted. Owned by the HostSegment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/base/bytes.h"
#include "core/group/doorbells.h"
#include "core/group/shared_copy.h"

namespace hvd {

/// In shared memory. Up to sizeof(beside) bytes lie in the cache line of their flag, so that both
/// arrive together; a little more lies behind it, always in the same place, which the caches
/// nearest to the cores keep; and much lies in the ring of its rank, where `beside` says (a u64).
struct EagerSlot {
  /// Exchange and bytes, as EagerSlots::word_of. Partner: EagerSlots::has_posted
  alignas(kCacheLine) std::atomic<uint64_t> posted;
  std::array<std::byte, 56> beside;
  std::array<std::byte, 4096> behind;
  /// Of local rank 0's slots alone: how many shares of an exchange's work are claimed, and made, as
  /// EagerSlots::word_of has bytes. All ranks write them. Partners: EagerSlots::claim;
  /// EagerSlots::all_are_made
  alignas(kCacheLine) std::atomic<uint64_t> claimed;
  alignas(kCacheLine) std::atomic<uint64_t> made;
};
static_assert(sizeof(EagerSlot) == 3 * kCacheLine + 4096);

/// Seen from one rank; owned and driven by one thread. All ranks of the host go through the same
/// exchanges in the same order, and each posts in every one of them, if only nothing: a message at
/// once or piece by piece. Never blocks.
///
/// A rank posts in exchange n by its slot n % kSlots. It is overwritten in exchange n + kSlots,
/// when everybody has posted in exchange n + 1 and so is done with n. Ranks that wait for each
/// other's posts know that without asking; one that only posts (the root of a broadcast) can be
/// kSlots - 1 ahead.
///
/// The ring is longer than most caches of one core, so that a core seldom takes a line away from
/// another one (shared_copy.h). Measured at np 2, always the same place and the ring: 4 KiB 0.7 and
/// 0.8 us, 8 KiB 1.5 and 0.8, 64 KiB 12 and 4, 256 KiB 35 and 15.
class EagerSlots {
 public:
  static constexpr uint64_t kSlots = 2;
  static constexpr int kMostRanks = 64;
  static constexpr size_t kMostBytes = MiB;

  struct Sizes {
    size_t most_bytes = 0;  ///< of a message
    size_t ring_bytes = 0;  ///< at least least_ring_bytes(most_bytes); both whole cache lines
  };
  /// `areas[r]` is that of rank r: area_bytes(ring_bytes), aligned to a cache line, made by make().
  /// `doorbells` and `copy` outlive this.
  EagerSlots(std::vector<std::byte*> areas, Sizes sizes, Doorbells& doorbells, SharedCopy& copy);
  static size_t area_bytes(size_t ring_bytes) { return kSlots * sizeof(EagerSlot) + ring_bytes; }
  /// Whether a message follows the one before it or goes back to the beginning of the ring, it does
  /// not touch those of the last kSlots - 1 exchanges.
  static size_t least_ring_bytes(size_t most_bytes) { return (kSlots + 1) * most_bytes; }
  /// Makes the slots of one rank, before any rank looks.
  static void make(std::byte* area);

  int local_rank() const { return doorbells_.local_rank(); }
  int local_ranks() const { return static_cast<int>(areas_.size()); }
  /// Of one message; a multiple of a cache line.
  size_t most_bytes() const { return sizes_.most_bytes; }

  /// Room for the message of this rank in this exchange; nullptr until every peer has posted in the
  /// exchange before, and so reads no more of what lies there. Once it has returned room, not again
  /// before finish().
  std::byte* reserve(size_t message_bytes);
  /// As memcpy, into that room.
  void fill(std::byte* to, const std::byte* from, size_t bytes) { copy_.copy(to, from, bytes); }
  /// Shows the first `bytes` of the message to everybody, and wakes who sleeps.
  void post(size_t bytes);
  /// The message of `rank` in this exchange, known to all to have `message_bytes`, once at least
  /// the first `bytes` of it are there; else nullptr. Valid until finish().
  const std::byte* view(int rank, size_t message_bytes, size_t bytes);
  /// While peers' messages are read: takes the lines of the next message, if it is as long as this
  /// one, away from who has read them. Where it lies behind the line of its flag, not that line: a
  /// peer that is ahead already looks at it. np 2, with and without: 8 B 0.22 and 0.31 us, 1 KiB
  /// 0.60 and 0.74, 4 KiB 0.97 and 1.28.
  void fetch_next(size_t message_bytes);
  /// Work on what all have posted, in `shares`, as many on all ranks, of which one is taken after
  /// the other: the number of one that nobody has yet, or nothing. Only for a rank that has seen
  /// all posts. From then on a view of local rank 0's message may show results.
  std::optional<int> claim(int shares);
  /// Of a share that this rank has claimed.
  void tell_made(int shares);
  bool all_are_made(int shares) const;
  /// Where the result of that work lies, in place of the message of local rank 0: each share of it
  /// is written by the rank that has claimed it. Valid until finish().
  std::byte* result(size_t message_bytes) { return content(0, message_bytes); }
  /// This rank has posted all of its message and seen what it wanted. The next exchange begins.
  void finish() { ++exchange_; }

  /// As Doorbells has them: this rank has offered its memory to its peers, and leaves in the
  /// middle.
  void give_up(int first) { doorbells_.give_up(first); }
  int who_has_given_up() const { return doorbells_.who_has_given_up(); }
  /// Around each write to memory that a peer has offered. False where one has given up: that memory
  /// is no longer to be touched.
  [[nodiscard]] bool begin_writing();
  void end_writing() { doorbells_.set_writing(false); }
  /// Whether `rank` may be writing to memory that this rank had offered before it gave up.
  bool is_writing(int rank) const { return doorbells_.is_writing(rank); }

  /// reserve() and post() of a message that is one value; false as long as there is no room.
  template <class T>
  bool post_value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(EagerSlot::beside));
    std::byte* const room = reserve(sizeof(T));
    if (room == nullptr) return false;
    std::memcpy(room, &value, sizeof(T));
    post(sizeof(T));
    return true;
  }
  /// What `rank` has posted so in this exchange, if it has.
  template <class T>
  std::optional<T> value(int rank) {
    const std::byte* const seen = view(rank, sizeof(T), sizeof(T));
    if (seen == nullptr) return std::nullopt;
    T value;
    std::memcpy(&value, seen, sizeof(T));
    return value;
  }

  /// What a rank's flag says: of which exchange so many bytes are there. After 2^40 exchanges,
  /// which take days, words begin anew.
  static uint64_t word_of(uint64_t exchange, size_t bytes) { return exchange << 24 | bytes; }
  /// Whether a flag that says `word` says `wanted`, too, which is not far away from it.
  static bool reaches(uint64_t word, uint64_t wanted) {
    return static_cast<int64_t>(word - wanted) >= 0;
  }
  /// How many shares `word` says that `exchange` has: none where it is of an earlier one, unless
  /// exactly 2^40 exchanges ago.
  static int shares_in(uint64_t word, uint64_t exchange) {
    const uint64_t since = word - word_of(exchange, 0);
    return since < word_of(1, 0) ? static_cast<int>(since) : 0;
  }

 private:
  EagerSlot& slot(int rank, uint64_t exchange) const {
    return reinterpret_cast<EagerSlot*>(areas_[rank])[exchange % kSlots];
  }
  /// Of the message of a rank in its ring, in one exchange.
  struct RingPlace {
    uint64_t exchange = 0;
    uint64_t at = 0;
  };

  uint64_t next_place(size_t message_bytes);
  std::byte* content(int rank, size_t message_bytes);
  uint64_t place_in_ring(int rank);
  bool has_posted(int rank, uint64_t exchange, size_t bytes);

  std::vector<std::byte*> areas_;
  Sizes sizes_;
  Doorbells& doorbells_;
  SharedCopy& copy_;
  uint64_t exchange_ = 1;
  uint64_t ring_end_ = 0;          ///< of this rank's newest message in its ring
  std::vector<uint64_t> seen_;     ///< [rank] what the shared words said when last looked at
  std::vector<RingPlace> places_;  ///< [rank] as last looked up
};

}  // namespace hvd
