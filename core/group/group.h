// An ordered set of ranks that can exchange bytes, as seen by one of them: the world, the ranks of
// a host, a process set. The executor moves all bytes of a batch through this interface. It is
// implemented over shared memory (ShmGroup) and over links (LinkGroup).
//
// Bytes are transferred in units. A rank reserves a buffer for a unit, fills it, publishes it,
// reads what its peers published, and releases the unit. All ranks of a group process the same
// units in the same order; no function here blocks.
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

/// The position of a unit in the agreed order. `batch` counts over all groups of a job, so that one
/// counter per rank serves all its groups; `unit` counts within the batch from 0.
struct Ticket {
  uint64_t batch = 0;
  uint32_t unit = 0;
  auto operator<=>(const Ticket&) const = default;
};

/// A range of a unit, sent to or received from one rank of the group.
struct Parcel {
  int peer = 0;  ///< rank within the group
  size_t offset = 0;
  size_t bytes = 0;
};

/// A parcel and the memory that it is sent from: consecutive pieces.
struct Loan {
  Parcel parcel;
  std::span<const ConstBytes> pieces;
};

class EagerBuffers;

/// Owned and used by one thread.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns whether peers read each other's buffers directly; determines which algorithms are
  /// cheap.
  virtual bool shared_memory() const = 0;
  /// Returns whether all ranks are on one machine. Equal on all ranks of the group.
  virtual bool on_one_machine() const { return shared_memory(); }
  /// Returns the eager buffers of the host if the group consists of exactly the ranks of one host
  /// and the segment has eager buffers; otherwise nullptr. The segment owns them.
  virtual EagerBuffers* eager_buffers() const { return nullptr; }
  /// Returns how many consecutive ranks share a core; 1 if each may have its own core, if
  /// consecutive ranks do not share one, or if it does not matter. Divides size(). Equal on all
  /// ranks of the group.
  virtual int ranks_a_core() const { return 1; }
  /// Returns the maximum size of a unit. Equal on all ranks of the group.
  virtual size_t unit_bytes() const = 0;
  /// Returns how many units a rank may have published and not yet released. Equal on all ranks; at
  /// least 2.
  virtual uint32_t units_in_flight() const = 0;
  /// Returns how many units should be in progress at a time. Equal on all ranks; 1 if latency is so
  /// low that finishing a segment while it is cached is faster.
  virtual uint32_t units_to_overlap() const { return units_in_flight(); }

  /// Returns a buffer for the `bytes` that `ticket` will publish; nullopt while a peer still reads
  /// its previous content. A ticket that publishes nothing need not be reserved.
  virtual std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes) = 0;

  /// Like memcpy, into a reserved buffer.
  virtual void fill(std::byte* to, const std::byte* from, size_t bytes) {
    kernel::copy(to, from, bytes);
  }

  /// Makes the parcels (ranges of the reserved buffer, possibly overlapping) visible to their
  /// peers. Called once per unit in order, without parcels if this rank sends nothing.
  virtual void publish(Ticket ticket, std::span<const Parcel> parcels) = 0;

  /// Returns the bytes that `from.peer` published for this rank at `from.offset` under this ticket;
  /// nullopt until they have arrived. `from.peer` may be this rank: its own buffer. The view is
  /// valid until release(ticket).
  virtual std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) = 0;

  /// Ends reading of this unit. Called once per unit in order.
  virtual void release(Ticket ticket) = 0;

  /// Returns whether the calls below are supported: zero-copy sends and posted receives, which
  /// avoid one copy each. In shared memory the staging buffer itself is the transfer.
  virtual bool in_place() const { return false; }
  /// Like publish(), as a zero-copy send from the caller's memory, which must not change until
  /// sent(ticket).
  virtual void publish_loans(Ticket /*ticket*/, std::span<const Loan> /*loans*/) {
    HVD_ASSERT(false);
  }
  /// Returns whether the memory published under this ticket may be reused.
  virtual bool sent(Ticket /*ticket*/) const { return true; }
  /// Posts a receive of `from` into `target`, or into memory of the group if `target` is empty;
  /// view() then returns it. Has no effect if the parcel has already arrived. Called in the order
  /// in which a peer publishes. `target` must stay valid until view() returns it.
  virtual void land(Ticket /*ticket*/, const Parcel& /*from*/, MutableBytes /*target*/) {}
  /// Ends all use of the caller's memory when it abandons a batch.
  virtual void return_loans() {}

  /// Sends and receives over links; returns whether any bytes moved. Does nothing in shared memory.
  virtual bool pump() = 0;
};

/// A group and, for hierarchical algorithms, its two levels. Levels exist if the group spans
/// several hosts with the same number of ranks (at least two) on each. Groups are shared, so that a
/// level can be the only group of other GroupLevels.
struct GroupLevels {
  std::shared_ptr<Group> all{};
  std::shared_ptr<Group> host{};  ///< the ranks of this host; nullptr without levels
  std::shared_ptr<Group>
      across{};              ///< the ranks of all hosts with the same local index as this rank
  std::vector<int> ranks{};  ///< [rank in across, rank in host] the rank in `all`
};

}  // namespace hvd
