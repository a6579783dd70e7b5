// The shared memory of the ranks of one host, for a job or a blocking group: progress counters and
// doorbells, rings for control frames, staging buffers for tensor data. The host's leader creates
// it and passes the descriptor to the other ranks. The Wiring of each rank owns its HostSegment,
// which outlives all Groups and Links made from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/group/doorbells.h"
#include "core/group/eager_buffers.h"
#include "core/group/segment_layout.h"
#include "core/group/shared_copy.h"
#include "core/group/staging.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/link.h"

namespace hvd {

/// Name of the memfd, as /proc/<pid>/fd shows it. Each rank keeps it open while it uses the memory.
inline constexpr std::string_view kSegmentFile = "horovod-segment";

/// In shared memory, after the header.
struct JobState {
  /// 1 + the global rank whose loss ends the job, or 0. Partner: HostSegment::reported_loss
  std::atomic<int32_t> lost;
};
static_assert(std::atomic<int32_t>::is_always_lock_free);

/// The view of one rank of the host. Owned and used by one thread. A forked child must not access
/// it: the memory is not mapped there.
class HostSegment {
 public:
  /// For local rank 0. Throws Error{internal} if the memory cannot be allocated: here, not at the
  /// first access.
  static std::unique_ptr<HostSegment> create(const SegmentLayout& layout, uint32_t generation);
  /// For the other ranks. `fd` is the leader's fd() as received here; its size, seals and header
  /// are checked before use. Throws Error{internal}.
  static std::unique_ptr<HostSegment> open(FileDescriptor fd, const SegmentLayout& layout,
                                           uint32_t generation, int local_rank);
  /// In caller-provided memory, zeroed and aligned to a page. Local rank 0 must be constructed
  /// first; it initializes the memory.
  HostSegment(MutableBytes memory, const SegmentLayout& layout, uint32_t generation,
              int local_rank);
  ~HostSegment();
  HostSegment(const HostSegment&) = delete;
  HostSegment& operator=(const HostSegment&) = delete;

  const SegmentLayout& layout() const { return layout_; }
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return static_cast<int>(layout_.local_ranks); }
  /// The descriptor to pass to the other ranks of the host; -1 for caller-provided memory.
  int fd() const { return fd_.get(); }

  /// Sets the eventfd on which `local_rank` sleeps. All must be set before any rank sleeps.
  void set_doorbell(int local_rank, FileDescriptor eventfd) {
    doorbells_.set(local_rank, std::move(eventfd));
  }
  /// Wakes `local_rank` if it sleeps; call it after the seq_cst store that it must see.
  void wake(int local_rank) { doorbells_.wake(local_rank); }
  /// Called around Waiter::wait: call set_asleep(true), check once more everything that a peer may
  /// have changed (links, units), and wait only if nothing changed. A peer that acts after this
  /// check rings. Then call set_asleep(false).
  void set_asleep(bool asleep) { doorbells_.set_asleep(asleep); }
  /// Returns whether this rank's flag is still set: no peer has woken it since set_asleep(true).
  bool is_asleep() const { return doorbells_.is_asleep(local_rank_); }

  /// Marks a clean exit: afterwards the end of this process is not a loss.
  void say_goodbye() { doorbells_.say_goodbye(); }
  bool said_goodbye(int local_rank) const { return doorbells_.said_goodbye(local_rank); }
  /// Reports that this rank ends because `rank` (global) is lost, and wakes all ranks. Only the
  /// first report on this host counts.
  void report_loss(int rank);
  /// Returns that rank; kNoRank if there is none.
  int reported_loss() const {  // partner: report_loss
    return job_.lost.load(std::memory_order_seq_cst) - 1;
  }

  /// As in Doorbells.
  void give_up(int first) { doorbells_.give_up(first); }
  int who_has_given_up() const { return doorbells_.who_has_given_up(); }

  /// Returns the link between the leader and another rank of the host; this rank must be one of the
  /// two. Call once per pair. `peer` is the global rank of `local_peer`, for errors.
  std::unique_ptr<Link> control_link(int local_peer, int peer);

  /// This rank's staging buffers, shared by all its groups.
  Staging& staging() { return staging_; }
  /// nullptr if the layout has none.
  EagerBuffers* eager_buffers() { return eager_buffers_ ? &*eager_buffers_ : nullptr; }

 private:
  HostSegment(FileDescriptor fd, MutableBytes memory, const SegmentLayout& layout,
              uint32_t generation, int local_rank);
  void check_header(uint32_t generation) const;

  FileDescriptor fd_;
  MutableBytes memory_;
  SegmentLayout layout_;
  int local_rank_;
  JobState& job_;
  Doorbells doorbells_;
  SharedCopy copy_;
  Staging staging_;
  std::optional<EagerBuffers> eager_buffers_;
};

}  // namespace hvd
