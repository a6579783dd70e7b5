// The staging buffers in shared memory, as seen by one rank: the slot of a unit, the possible
// readers of a slot, and the progress of the other ranks of the host. All groups of a rank share
// one Staging, because its counters cover one order over all groups. Owned by the HostSegment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/group/doorbells.h"
#include "core/group/group.h"
#include "core/group/shared_copy.h"

namespace hvd {

/// The maximum number of batches of a job and units of a batch that the progress counters can
/// represent.
inline constexpr int kUnitBits = 24;
inline constexpr uint32_t kMaxUnit = (uint32_t{1} << kUnitBits) - 2;
inline constexpr uint64_t kMaxBatch = (uint64_t{1} << (64 - kUnitBits)) - 1;

/// Encodes a Ticket as one increasing number; 0 precedes all tickets.
uint64_t key_of(Ticket ticket);

/// Ranks are local ranks. Owned and used by one thread; never blocks.
///
/// A slot is reused only when all readers of its last use have released it, regardless of group and
/// batch. The slot of a unit follows from its Ticket, so readers need no further information.
class Staging {
 public:
  /// `areas[r]` is the staging area of rank r: `slots` slots of equal size. The areas, `doorbells`
  /// and `copy` must outlive this.
  Staging(std::vector<MutableBytes> areas, uint32_t slots, Doorbells& doorbells, SharedCopy& copy);

  int local_rank() const { return own_; }
  size_t unit_bytes() const { return unit_bytes_; }
  uint32_t slots() const { return static_cast<uint32_t>(uses_.size()); }

  /// Returns the buffer for a unit; nullopt while a reader of the slot's previous content has not
  /// released it.
  std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes);
  /// Like memcpy, into a reserved buffer.
  void fill(std::byte* to, const std::byte* from, size_t bytes) { copy_.copy(to, from, bytes); }
  /// Makes the reserved unit visible to `readers` and wakes them. `readers` may contain duplicates
  /// and this rank.
  void publish(Ticket ticket, std::span<const int> readers);
  /// Returns the slot of `from` once it has published this ticket, else nullopt.
  std::optional<ConstBytes> view(Ticket ticket, int from);
  /// Ends reading of this ticket here. Wakes those of `ranks` that wait for it.
  void release(Ticket ticket, std::span<const int> ranks);

 private:
  /// The last use of a slot. Its content may be overwritten when all readers have released `key`.
  struct Use {
    uint64_t key = 0;
    std::vector<int> readers;
  };

  /// Slots of consecutive batches are far apart, even if batches have few units: reusing lines that
  /// a peer has just read is slow (shared_copy.h).
  size_t slot_of(Ticket ticket) const {
    constexpr uint64_t kBetweenBatches = 5;
    return (ticket.batch * kBetweenBatches + ticket.unit) % uses_.size();
  }
  MutableBytes slot_area(int rank, Ticket ticket) const {
    return areas_[rank].subspan(slot_of(ticket) * unit_bytes_, unit_bytes_);
  }
  bool is_released(int rank, uint64_t key);
  bool wait_for_release(int rank, uint64_t key);
  void needs_release_of(uint32_t value);

  std::vector<MutableBytes> areas_;
  size_t unit_bytes_;
  Doorbells& doorbells_;
  SharedCopy& copy_;
  std::vector<Use> uses_;
  int own_;
  uint64_t published_ = 0;
  uint64_t released_ = 0;
  uint32_t needs_release_of_ = 0;
  std::vector<uint64_t> seen_published_;  ///< [rank] last seen values of the shared counters
  std::vector<uint64_t> seen_released_;
};

}  // namespace hvd
