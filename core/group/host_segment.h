// The memory that ranks of one host share, those of a job or of a blocking group: progress counters
// and doorbells, rings for control frames, staging for the bytes of tensors. The host's leader
// creates it and hands the descriptor to the others; the Wiring of each rank owns its HostSegment,
// which outlives all Groups and Links made from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/bytes.h"
#include "core/group/doorbells.h"
#include "core/group/eager_slots.h"
#include "core/group/segment_layout.h"
#include "core/group/shared_copy.h"
#include "core/group/staging.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/link.h"

namespace hvd {

/// Seen from one rank of the host. Owned and driven by one thread. A forked child must not touch
/// it: its memory is not mapped there.
class HostSegment {
 public:
  /// Local rank 0. Throws Error{internal} when the memory is not there: now, not at the first
  /// touch.
  static std::unique_ptr<HostSegment> create(const SegmentLayout& layout, uint32_t generation);
  /// The others. `fd` is the leader's fd() as it arrived here; it is trusted only after a look at
  /// its size, its seals and its header. Throws Error{internal}.
  static std::unique_ptr<HostSegment> open(FileDescriptor fd, const SegmentLayout& layout,
                                           uint32_t generation, int local_rank);
  /// In memory that the caller owns, zero and aligned to a page. Local rank 0 comes first and fills
  /// it in.
  HostSegment(MutableBytes memory, const SegmentLayout& layout, uint32_t generation,
              int local_rank);
  ~HostSegment();
  HostSegment(const HostSegment&) = delete;
  HostSegment& operator=(const HostSegment&) = delete;

  const SegmentLayout& layout() const { return layout_; }
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return static_cast<int>(layout_.local_ranks); }
  /// For the other ranks of the host; -1 in memory of the caller.
  int fd() const { return fd_.get(); }

  /// The eventfd on which `local_rank` sleeps. All are set before anybody sleeps.
  void set_doorbell(int local_rank, FileDescriptor eventfd) {
    doorbells_.set(local_rank, std::move(eventfd));
  }
  /// Wakes `local_rank` if it sleeps; after the seq_cst store that it shall see.
  void wake(int local_rank) { doorbells_.wake(local_rank); }
  /// Around Waiter::wait: set_asleep(true), look once more at everything that a peer may have
  /// changed (links, units), and wait only if there was nothing; a peer that acts after that look
  /// rings. Then set_asleep(false).
  void set_asleep(bool asleep) { doorbells_.set_asleep(asleep); }
  /// Whether this rank's flag is still up: nobody has woken it since set_asleep(true).
  bool is_asleep() const { return doorbells_.is_asleep(local_rank_); }

  /// This rank has ended in good order: from now on the end of its process is no loss.
  void say_goodbye() { doorbells_.say_goodbye(); }
  bool said_goodbye(int local_rank) const { return doorbells_.said_goodbye(local_rank); }
  /// As Doorbells has them.
  void give_up(int first) { doorbells_.give_up(first); }
  int who_has_given_up() const { return doorbells_.who_has_given_up(); }

  /// The link between the leader and another rank of the host, of which one is this rank: one a
  /// pair. `peer` is the global rank of `local_peer`, for errors.
  std::unique_ptr<Link> control_link(int local_peer, int peer);

  /// This rank's staging, one for all its groups.
  Staging& staging() { return staging_; }
  /// nullptr where the layout has none.
  EagerSlots* eager_slots() { return eager_slots_ ? &*eager_slots_ : nullptr; }

 private:
  HostSegment(FileDescriptor fd, MutableBytes memory, const SegmentLayout& layout,
              uint32_t generation, int local_rank);
  void check_header(uint32_t generation) const;

  FileDescriptor fd_;
  MutableBytes memory_;
  SegmentLayout layout_;
  int local_rank_;
  Doorbells doorbells_;
  SharedCopy copy_;
  Staging staging_;
  std::optional<EagerSlots> eager_slots_;
};

}  // namespace hvd
