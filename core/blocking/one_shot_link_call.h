// One-shot over links: a latency-bound operation as a single exchange. Every rank sends each peer
// the data that it needs, zero-copy from the input, and receives the data of its sources. It needs
// no schedule, plan or executor. The caller owns it, for one call. Measurements:
// docs/decisions/0014.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/backend/backend.h"
#include "core/blocking/tensor_task.h"
#include "core/group/group.h"

namespace hvd {

/// Driven by one thread. The group and the memory of the task must outlive it. The group must
/// support zero-copy sends (Group::in_place). The task has no prescale.
class OneShotLinkCall {
 public:
  /// `sequence`: see Batch.
  OneShotLinkCall(Group& group, uint64_t sequence, const TensorTask& task);
  ~OneShotLinkCall();
  OneShotLinkCall(const OneShotLinkCall&) = delete;
  OneShotLinkCall& operator=(const OneShotLinkCall&) = delete;

  /// The limits for a group of `ranks` ranks.
  static SizeLimits limits(int ranks);

  /// Never blocks. Returns `done` when the result is complete and no zero-copy send is pending.
  /// Throws the errors of the group: Error{peer_lost}, and Error{internal} for a malformed frame.
  Progress advance();

 private:
  static constexpr int kMostRanks = 64;

  bool send();
  void await_landings();
  bool take();
  Progress pump();

  Group& group_;
  const Ticket ticket_;
  const TensorTask& task_;
  const Stretch wanted_;
  const int sources_;  ///< ranks whose input this rank reads; 0 if it needs nothing
  bool sent_ = false;
  bool done_ = false;
  int seen_ = 0;                               ///< sources whose input has arrived
  std::array<const void*, kMostRanks> parts_;  ///< [rank] the inputs seen, for a reduction
};

}  // namespace hvd
