#include "core/engine/group_calls.h"

#include <chrono>
#include <utility>

namespace hvd {

GroupCalls::Place GroupCalls::add(Call call) {
  const std::lock_guard lock(mutex_);
  return calls_.insert(calls_.end(), std::move(call));
}

void GroupCalls::remove(Place place) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.erase(place);
}

std::vector<PendingOperation> GroupCalls::pending(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  std::vector<PendingOperation> found;
  for (const Call& call : calls_) {
    if (found.size() == kMaxPendingInState) break;
    found.push_back({.name = call.name,
                     .what = "blocking",
                     .between = call.ranks,
                     .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - call.since),
                     .is_call = true});
  }
  return found;
}

}  // namespace hvd
