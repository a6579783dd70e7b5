// Small messages in shared memory by the eager protocol: each rank posts its message for all other
// ranks, with the flag next to the data, and polls the messages of its peers. Owned by the
// HostSegment.
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

/// In shared memory. Up to sizeof(beside) bytes share the cache line of the flag, so that both
/// arrive together. Messages up to sizeof(behind) are stored in `behind`, always at the same
/// address, which stays in the L1 and L2 caches. Longer messages are stored in the ring of the rank
/// at the offset stored in `beside` (a u64).
struct EagerBuffer {
  /// Exchange and bytes, as in EagerBuffers::word_of. Partner: EagerBuffers::has_posted
  alignas(kCacheLine) std::atomic<uint64_t> posted;
  std::array<std::byte, 56> beside;
  std::array<std::byte, 4096> behind;
  /// Used in the slots of local rank 0 only: the number of claimed and of finished work shares of
  /// an exchange, encoded as the bytes in EagerBuffers::word_of. Written by all ranks. Partners:
  /// EagerBuffers::claim; EagerBuffers::all_are_made
  alignas(kCacheLine) std::atomic<uint64_t> claimed;
  alignas(kCacheLine) std::atomic<uint64_t> made;
};
static_assert(sizeof(EagerBuffer) == 3 * kCacheLine + 4096);

/// The view of one rank; owned and used by one thread. All ranks of the host perform the same
/// exchanges in the same order. Each rank posts in every exchange, even if its message is empty, at
/// once or in pieces. Never blocks.
///
/// A rank uses slot n % kSlots in exchange n. It overwrites the slot in exchange n + kSlots, when
/// all ranks have posted in exchange n + 1 and have therefore finished n. Ranks that wait for each
/// other's posts need no extra check; a rank that only posts (the root of a broadcast) can be at
/// most kSlots - 1 exchanges ahead.
///
/// The ring is longer than most private caches, so that a core seldom has to take a cache line away
/// from another core (shared_copy.h, docs/decisions/0025).
class EagerBuffers {
 public:
  static constexpr uint64_t kSlots = 2;
  static constexpr int kMostRanks = 64;
  static constexpr size_t kMostBytes = MiB;

  struct Sizes {
    size_t most_bytes = 0;  ///< of a message
    size_t ring_bytes = 0;  ///< at least least_ring_bytes(most_bytes); both whole cache lines
  };
  /// `areas[r]` is the area of rank r: area_bytes(ring_bytes), aligned to a cache line, initialized
  /// by make(). `doorbells` and `copy` must outlive this.
  EagerBuffers(std::vector<std::byte*> areas, Sizes sizes, Doorbells& doorbells, SharedCopy& copy);
  static size_t area_bytes(size_t ring_bytes) { return kSlots * sizeof(EagerBuffer) + ring_bytes; }
  /// The ring size at which a message never overlaps messages of the last kSlots - 1 exchanges,
  /// also after a wrap.
  static size_t least_ring_bytes(size_t most_bytes) { return (kSlots + 1) * most_bytes; }
  /// Initializes the slots of one rank, before any rank reads them.
  static void make(std::byte* area);

  int local_rank() const { return doorbells_.local_rank(); }
  int local_ranks() const { return static_cast<int>(areas_.size()); }
  /// Maximum size of a message; a multiple of a cache line.
  size_t most_bytes() const { return sizes_.most_bytes; }

  /// Returns the buffer for this rank's message in this exchange; nullptr until all peers have
  /// posted in the previous exchange and therefore no longer read the buffer. After it has returned
  /// a buffer, do not call it again before finish().
  std::byte* reserve(size_t message_bytes);
  /// Like memcpy, into the reserved buffer.
  void fill(std::byte* to, const std::byte* from, size_t bytes) { copy_.copy(to, from, bytes); }
  /// Makes the first `bytes` of the message visible to all ranks and wakes sleeping ones.
  void post(size_t bytes);
  /// Returns the message of `rank` in this exchange, whose size `message_bytes` is known to all
  /// ranks, once at least its first `bytes` have arrived; otherwise nullptr. Valid until finish().
  const std::byte* view(int rank, size_t message_bytes, size_t bytes);
  /// Prefetches the lines of the next message for writing, assuming the same size, while this rank
  /// reads its peers' messages. Skips the line of the flag if the message is stored in `behind`,
  /// because a peer that is ahead already polls it.
  void fetch_next(size_t message_bytes);
  /// Self-scheduled work on the posted messages, divided into `shares` (equal on all ranks):
  /// returns the next unclaimed share, or nullopt. Only for a rank that has seen all posts.
  /// Afterwards a view of local rank 0's message may contain results.
  std::optional<int> claim(int shares);
  /// Marks a claimed share as finished.
  void tell_made(int shares);
  bool all_are_made(int shares) const;
  /// Returns the buffer of the result, which replaces the message of local rank 0. The rank that
  /// has claimed a share writes it. Valid until finish().
  std::byte* result(size_t message_bytes) { return content(0, message_bytes); }
  /// Ends the exchange: this rank has posted its whole message and read the messages it needs.
  void finish() { ++exchange_; }

  /// As in Doorbells: abandons a call in which this rank has exposed its memory to its peers.
  void give_up(int first) { doorbells_.give_up(first); }
  int who_has_given_up() const { return doorbells_.who_has_given_up(); }
  /// Call around each write to a peer's exposed memory. begin_writing() returns false if a rank has
  /// given up: that memory must not be accessed any more.
  [[nodiscard]] bool begin_writing();
  void end_writing() { doorbells_.set_writing(false); }
  /// Returns whether `rank` may still write to memory that this rank had exposed before it gave up.
  bool is_writing(int rank) const { return doorbells_.is_writing(rank); }

  /// reserve() and post() for a message of one value; returns false while there is no room.
  template <class T>
  bool post_value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(EagerBuffer::beside));
    std::byte* const room = reserve(sizeof(T));
    if (room == nullptr) return false;
    std::memcpy(room, &value, sizeof(T));
    post(sizeof(T));
    return true;
  }
  /// Returns the value that `rank` has posted in this exchange, if it has.
  template <class T>
  std::optional<T> value(int rank) {
    const std::byte* const seen = view(rank, sizeof(T), sizeof(T));
    if (seen == nullptr) return std::nullopt;
    T value;
    std::memcpy(&value, seen, sizeof(T));
    return value;
  }

  /// Encodes the flag: exchange number and posted bytes. The exchange number wraps after 2^40
  /// exchanges, which take days.
  static uint64_t word_of(uint64_t exchange, size_t bytes) { return exchange << 24 | bytes; }
  /// Returns whether flag `word` has reached `wanted`, modulo wrap-around.
  static bool reaches(uint64_t word, uint64_t wanted) {
    return static_cast<int64_t>(word - wanted) >= 0;
  }
  /// Returns the number of shares of `exchange` encoded in `word`; 0 if it belongs to an earlier
  /// exchange (unless exactly 2^40 exchanges ago).
  static int shares_in(uint64_t word, uint64_t exchange) {
    const uint64_t since = word - word_of(exchange, 0);
    return since < word_of(1, 0) ? static_cast<int>(since) : 0;
  }

 private:
  EagerBuffer& slot(int rank, uint64_t exchange) const {
    return reinterpret_cast<EagerBuffer*>(areas_[rank])[exchange % kSlots];
  }
  /// Position of a rank's message in its ring, for one exchange.
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
  uint64_t ring_end_ = 0;          ///< end of this rank's newest message in its ring
  std::vector<uint64_t> seen_;     ///< [rank] last seen values of the shared flags
  std::vector<RingPlace> places_;  ///< [rank] as last computed
};

}  // namespace hvd
