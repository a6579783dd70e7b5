// Staging in shared memory as one rank sees it: in which slot a unit lies, who may still read a
// slot, and how far the other ranks of the host have come. All groups of a rank share one Staging,
// because its counters tell one order over all of them. Owned by the HostSegment.
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

/// The most batches of a job and units of a batch that the progress counters can tell apart.
inline constexpr int kUnitBits = 24;
inline constexpr uint32_t kMaxUnit = (uint32_t{1} << kUnitBits) - 2;
inline constexpr uint64_t kMaxBatch = (uint64_t{1} << (64 - kUnitBits)) - 1;

/// A Ticket as one growing number; 0 comes before all of them.
uint64_t key_of(Ticket ticket);

/// Ranks are local ranks. Owned and driven by one thread; never blocks.
///
/// A slot is used again only when all readers of its last use have released it, whichever group and
/// batch that was. The slot of a unit follows from its Ticket alone, so readers need not be told.
class Staging {
 public:
  /// `areas[r]` is the staging of rank r: `slots` slots of equal size. It, `doorbells`
  /// and `copy` outlive this.
  Staging(std::vector<MutableBytes> areas, uint32_t slots, Doorbells& doorbells, SharedCopy& copy);

  int local_rank() const { return own_; }
  size_t unit_bytes() const { return unit_bytes_; }
  uint32_t slots() const { return static_cast<uint32_t>(uses_.size()); }

  /// Room for a unit, or empty while a rank that reads what lay there has not released it.
  std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes);
  /// As memcpy, into reserved room.
  void fill(std::byte* to, const std::byte* from, size_t bytes) { copy_.copy(to, from, bytes); }
  /// Makes the reserved unit visible to `readers`, which may repeat and include this rank, and
  /// wakes them.
  void publish(Ticket ticket, std::span<const int> readers);
  /// The slot of `from` once it has published this ticket.
  std::optional<ConstBytes> view(Ticket ticket, int from);
  /// Nothing of this ticket is read here any more. Wakes those of `ranks` that wait for it.
  void release(Ticket ticket, std::span<const int> ranks);

 private:
  /// What a slot was last used for. Its content may be overwritten when all readers have released
  /// `key`.
  struct Use {
    uint64_t key = 0;
    std::vector<int> readers;
  };

  /// Far from those of the batch before, also where batches have few units: lines that a peer has
  /// just read would have to be taken away from it (shared_copy.h).
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
  std::vector<uint64_t>
      seen_published_;  ///< [rank]; what the shared counters said when last looked at
  std::vector<uint64_t> seen_released_;
};

}  // namespace hvd
