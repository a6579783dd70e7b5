// An ordered set of ranks that can exchange bytes, seen from one of them: the world, one host's
// ranks, a process set, all alike. The executor moves every byte of a batch through this interface;
// what lies below is shared memory (ShmGroup) or links (LinkGroup).
//
// Bytes travel in units. A rank reserves room for a unit, writes into it what its peers shall see,
// publishes it, looks at what the peers published, and releases the unit. All ranks of a group go
// through the same units in the same order; nothing here blocks.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"

namespace hvd {

/// The place of a unit in the order that all ranks agree on. `batch` counts over all groups of a
/// job, so that one counter a rank serves every group it is in; `unit` counts within the batch from
/// 0.
struct Ticket {
  uint64_t batch = 0;
  uint32_t unit = 0;
  auto operator<=>(const Ticket&) const = default;
};

/// A stretch of a unit that goes to, or comes from, one rank of the group.
struct Parcel {
  int peer = 0;  ///< rank within the group
  size_t offset = 0;
  size_t bytes = 0;
};

/// A parcel, and the memory it is sent from: pieces that follow one another.
struct Loan {
  Parcel parcel;
  std::span<const ConstBytes> pieces;
};

/// Owned and driven by one thread.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True where peers read each other's room directly; decides which algorithms are cheap.
  virtual bool shared_memory() const = 0;
  /// Nothing that is sent leaves the machine. The same on all ranks of the group.
  virtual bool on_one_machine() const { return shared_memory(); }
  /// So many ranks in a row share a core; 1 where each may have its own, where those in a row do
  /// not share one, or where it does not matter. Divides size(). The same on all ranks of the
  /// group.
  virtual int ranks_a_core() const { return 1; }
  /// The largest unit. The same on all ranks of the group.
  virtual size_t unit_bytes() const = 0;
  /// How many units a rank may have published and not yet released. The same on all ranks; at
  /// least 2.
  virtual uint32_t units_in_flight() const = 0;
  /// How many units it pays to have under way at a time. The same on all ranks; 1 where a message
  /// takes so little that a segment should rather be done with while it is in the caches.
  virtual uint32_t units_to_overlap() const { return units_in_flight(); }

  /// Room for `bytes` that `ticket` will publish; empty optional while a peer still reads what lies
  /// there. A ticket that publishes nothing need not be reserved.
  virtual std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes) = 0;

  /// As memcpy, into reserved room.
  virtual void fill(std::byte* to, const std::byte* from, size_t bytes) {
    kernel::copy(to, from, bytes);
  }

  /// Makes the parcels (stretches of the reserved room, possibly overlapping) visible to their
  /// peers. Called once for every unit in order, with no parcels when this rank sends nothing.
  virtual void publish(Ticket ticket, std::span<const Parcel> parcels) = 0;

  /// The bytes that `from.peer` published for this rank at `from.offset` under this ticket; empty
  /// optional until they are there. `from.peer` may be this rank itself: its own room. The view is
  /// valid until release(ticket).
  virtual std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) = 0;

  /// This rank has read all it wanted of this unit. Called once for every unit in order.
  virtual void release(Ticket ticket) = 0;

  /// Over links, units may leave from where the tensors lie, and arrive there, instead of in a
  /// room: the calls below save a copy each. In shared memory the room is the transfer.
  virtual bool in_place() const { return false; }
  /// As publish(), from memory of the caller, which must not change until sent(ticket).
  virtual void publish_loans(Ticket /*ticket*/, std::span<const Loan> /*loans*/) {
    HVD_ASSERT(false);
  }
  /// Nothing published under this ticket is on loan any more.
  virtual bool sent(Ticket /*ticket*/) const { return true; }
  /// Asks that `from` lands in `target`, or in memory of the group when that is empty: where
  /// view() then finds it. It need not, if it has arrived already. Called in the order in which a
  /// peer publishes. `target` is on loan until view() returns it.
  virtual void land(Ticket /*ticket*/, const Parcel& /*from*/, MutableBytes /*target*/) {}
  /// The caller gives up in the middle of a batch: returns what is on loan.
  virtual void return_loans() {}

  /// Moves bytes of links; true when anything moved. Nothing to do in shared memory.
  virtual bool pump() = 0;
};

/// A group, and its two levels where hierarchical algorithms are wanted and possible: several
/// hosts, equally many ranks of the group on each, more than one.
struct GroupLevels {
  std::unique_ptr<Group> all{};
  std::unique_ptr<Group> host{};    ///< this host's ranks; nullptr without levels
  std::unique_ptr<Group> across{};  ///< the ranks of all hosts with this one's place in its host
  std::vector<int> ranks{};         ///< [rank in across, rank in host] the rank in `all`
};

}  // namespace hvd
