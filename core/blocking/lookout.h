// Finds silent ranks while a call on a blocking group waits. The ranks of a group cannot ask each
// other for signs of life, since a rank that is in no call has no thread that would answer. The
// progress engines of their job do it (core/engine/heartbeat.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/operation.h"

namespace hvd {

/// A call that waits.
struct WaitingCall {
  OperationKind kind{};
  uint64_t number = 0;  ///< of the call on its group, from 1: equal on all ranks
  TimePoint since{};    ///< it has not moved since then
};

/// Called by the thread that drives a BlockingGroup.
class Lookout {
 public:
  virtual ~Lookout() = default;
  /// `call` waits until end().
  virtual void begin(const WaitingCall& call) = 0;
  virtual void end() noexcept = 0;
  /// The loss of one of `ranks` (global) that has ended the job; nullopt if the job goes on, or has
  /// ended for another reason.
  virtual std::optional<Error> loss(std::span<const int> ranks) = 0;
};

}  // namespace hvd
