// The one loop that moves tensor bytes. It takes a Schedule, a Layout and the tensors of a batch,
// and goes through them segment by segment and phase by phase in a fixed order that every rank of the group
// derives alike. advance() moves at most one segment and returns, so that agreement goes on while bytes move.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/collective/gather_list.h"
#include "core/collective/layout.h"
#include "core/collective/schedule.h"
#include "core/group/group.h"

namespace hvd {

/// What a batch does with its bytes. Input and output address the same virtual buffer (the tensors of the
/// batch end to end); for an in-place operation they are the same memory.
struct Work {
  uint64_t batch = 0;  ///< Ticket::batch of every unit
  Schedule schedule;
  Layout layout;
  GatherList input;   ///< read once, before the first phase of each segment; empty: output holds it already
  GatherList output;  ///< where results are built and stay
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  ///< average is sum with a postscale
  double prescale = 1.0;
  double postscale = 1.0;
};

/// Owned and driven by one thread. The Group and the memory of the tensors outlive it.
class Executor {
 public:
  Executor(Group& group, Work work);

  enum class Progress : uint8_t { moved, waiting, done };
  /// Does what can be done now, at most about one segment's worth. Errors come from the Group (peer_lost).
  Progress advance();

 private:
  Group& group_;
  Work work_;
  // … the rest is the implementer's
};

}  // namespace hvd
