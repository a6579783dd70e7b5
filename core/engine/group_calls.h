// The calls on blocking groups, and those that make a group, that have waited for long. The thread
// of each call notes it; the progress engine tells of them (horovodrun --dump). Only calls that
// wait anyway take the mutex.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/board_state.h"

namespace hvd {

/// Any thread may call any function.
class GroupCalls {
 public:
  struct Call {
    std::string name{};            ///< equal on all ranks of the group
    std::vector<int32_t> ranks{};  ///< of the group: global, ascending
    TimePoint since{};
  };
  using Place = std::list<Call>::const_iterator;

  /// The call is removed before this ends.
  Place add(Call call);
  void remove(Place place) noexcept;
  /// At most kMaxPendingInState, those that were added first.
  std::vector<PendingOperation> pending(TimePoint now) const;

 private:
  mutable std::mutex mutex_;
  std::list<Call> calls_;
};

/// Notes a call as long as it lives.
class NotedCall {
 public:
  NotedCall(GroupCalls& calls, GroupCalls::Call call)
      : calls_(calls), place_(calls.add(std::move(call))) {}
  ~NotedCall() { calls_.remove(place_); }
  NotedCall(const NotedCall&) = delete;
  NotedCall& operator=(const NotedCall&) = delete;

 private:
  GroupCalls& calls_;
  const GroupCalls::Place place_;
};

}  // namespace hvd
