// A Group over links: publishing sends, viewing finds what has arrived.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/group/group.h"
#include "core/group/mesh.h"

namespace hvd {

/// Where the members of a group are, as Group says it; the same on all ranks.
struct MemberPlaces {
  bool on_one_machine = false;
  int ranks_a_core = 1;
};

/// Any ranks of the job, this one among them. Groups may overlap. The Mesh has a connection to
/// every member and outlives this.
class LinkGroup final : public Group {
 public:
  static constexpr uint32_t kUnitsInFlight = 4;
  /// A peer that is slow keeps at most about this much of ours waiting; enough to keep a socket
  /// busy.
  static constexpr size_t kUnsentLimitBytes = 2 * Mesh::kUnitBytes;
  /// Less is kept in a frame of its own until it is looked at, which costs the same. With 16 KiB,
  /// to land took 10.2 us for a broadcast and 11.6 for an alltoall over loopback, in place of 12.6
  /// and 13.8.
  static constexpr size_t kLeastLandingBytes = 4 * KiB;

  /// `members[i]` is the global rank of the group's rank i; `own` is this rank's.
  LinkGroup(Mesh& mesh, std::vector<int> members, int own, MemberPlaces places = {});
  /// What peers still wait for of this group's memory is copied; the mesh outlives it.
  ~LinkGroup() override { return_loans(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool shared_memory() const override { return false; }
  bool on_one_machine() const override { return places_.on_one_machine; }
  int ranks_a_core() const override { return places_.ranks_a_core; }
  size_t unit_bytes() const override { return Mesh::kUnitBytes; }
  uint32_t units_in_flight() const override { return kUnitsInFlight; }
  uint32_t units_to_overlap() const override { return on_one_machine() ? 1 : kUnitsInFlight; }

  std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes) override;
  void publish(Ticket ticket, std::span<const Parcel> parcels) override;
  std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) override;
  void release(Ticket ticket) override;
  bool pump() override;

  bool in_place() const override { return true; }
  void publish_loans(Ticket ticket, std::span<const Loan> loans) override;
  bool sent(Ticket ticket) const override;
  void land(Ticket ticket, const Parcel& from, MutableBytes target) override;
  void return_loans() final;

 private:
  // A look at a socket is a call into the kernel. All must be read in the end, since a peer may
  // wait for us to take what it has sent before it sends what we wait for. Where ranks share cores,
  // each look in vain keeps one from working: np 4 on two cores, an allreduce of 8 B 22.4 and 21.2
  // us with 4 and 64, of 16 KiB 25.8 and 23.8.
  static constexpr uint32_t kLooksAtAll = 4;
  static constexpr uint32_t kLooksAtAllInACrowd = 64;

  /// One look of so many is at all sockets, the others at what is awaited.
  uint32_t looks_a_round() const {
    return places_.ranks_a_core > 1 ? kLooksAtAllInACrowd : kLooksAtAll;
  }
  size_t slot_of(Ticket ticket) const { return (ticket.batch + ticket.unit) % kUnitsInFlight; }
  MutableBytes room(Ticket ticket) const;
  bool a_member_is_behind() const;
  void note_published(Ticket ticket);
  /// Memory of the group for what lands under this ticket.
  MutableBytes arrival_room(Ticket ticket, size_t bytes);

  /// Of the last ticket in a slot.
  struct Slot {
    std::optional<Ticket> reserved{};     ///< and not released
    std::vector<uint64_t> queued{};       ///< [member] sent once so much is; empty: all is
    std::vector<AlignedBuffer> landed{};  ///< rooms for what arrives
    size_t landings = 0;                  ///< how many of these are used
  };

  Mesh& mesh_;
  std::vector<int> members_;
  int rank_;
  MemberPlaces places_;
  AlignedBuffer rooms_;  ///< one a unit in flight; made when first needed
  std::array<Slot, kUnitsInFlight> slots_;
  std::optional<Ticket> published_;
  int awaited_ = 0;  ///< the member whose parcel was last looked for in vain
  uint32_t looks_ = 0;
};

}  // namespace hvd
