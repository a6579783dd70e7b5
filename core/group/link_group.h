// A Group over links: publish() sends, view() returns received data.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/group/group.h"
#include "core/group/mesh.h"

namespace hvd {

/// Placement of the members, as in Group; equal on all ranks.
struct MemberPlaces {
  bool on_one_machine = false;
  int ranks_a_core = 1;
};

/// A group of any ranks of the job that include this rank. Groups may overlap. The Mesh must have a
/// connection to every member and outlive this.
class LinkGroup final : public Group {
 public:
  static constexpr uint32_t kUnitsInFlight = 4;
  /// Limits the unsent bytes queued for a slow peer; large enough to keep a socket busy.
  static constexpr size_t kUnsentLimitBytes = 2 * Mesh::kUnitBytes;
  /// Shorter parcels are not received in place: they stay in their frame until viewed, which costs
  /// the same. Tuned by measurement, see docs/decisions/0013.
  static constexpr size_t kLeastLandingBytes = 4 * KiB;

  /// `members[i]` is the global rank of group rank i; `own` is this rank's global rank.
  LinkGroup(Mesh& mesh, std::vector<int> members, int own, MemberPlaces places = {});
  /// Copies unsent data that is in this group's memory; the mesh outlives it.
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
  // Polling a socket is a system call. All sockets must be read eventually, since a peer may block
  // until this rank reads what the peer has sent. On oversubscribed cores each unsuccessful poll
  // takes CPU time from another rank, so all sockets are polled less often. Tuned by measurement,
  // see docs/decisions/0013.
  static constexpr uint32_t kLooksAtAll = 4;
  static constexpr uint32_t kLooksAtAllInACrowd = 64;

  /// One poll in this many covers all sockets; the others cover only the awaited one.
  uint32_t looks_a_round() const {
    return places_.ranks_a_core > 1 ? kLooksAtAllInACrowd : kLooksAtAll;
  }
  size_t slot_of(Ticket ticket) const { return (ticket.batch + ticket.unit) % kUnitsInFlight; }
  MutableBytes room(Ticket ticket) const;
  bool a_member_is_behind() const;
  void note_published(Ticket ticket);
  /// Returns memory of the group for a parcel received under this ticket.
  MutableBytes arrival_room(Ticket ticket, size_t bytes);

  /// State of the last ticket in a slot.
  struct Slot {
    std::optional<Ticket> reserved{};  ///< not yet released
    std::vector<uint64_t>
        queued{};  ///< [member] sent when sent_bytes() reaches this; empty: all sent
    std::vector<AlignedBuffer> landed{};  ///< buffers for received parcels
    size_t landings = 0;                  ///< number of these in use
  };

  Mesh& mesh_;
  std::vector<int> members_;
  int rank_;
  MemberPlaces places_;
  AlignedBuffer rooms_;  ///< one buffer per unit in flight; allocated on first use
  std::array<Slot, kUnitsInFlight> slots_;
  std::optional<Ticket> published_;
  int awaited_ = 0;  ///< the member whose parcel was last polled without success
  uint32_t looks_ = 0;
};

}  // namespace hvd
