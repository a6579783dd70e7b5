#include "launcher/stopped_part.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

void StoppedPart::look(const LookForStopped& look, TimePoint now) {
  only_in_init_ = look.only_in_init;
  none_waits_ = only_in_init_ && store_.waiting_to_start(assignment_.generation()).empty();
  if (!none_waits_) dump_.look_for_stopped(now);
}

std::optional<std::vector<WorkerId>> StoppedPart::take() {
  auto stopped = dump_.take_stopped();
  const bool none_waits = std::exchange(none_waits_, false) ||
                          (only_in_init_ && stopped && !is_awaited_by_others(*stopped));
  return none_waits ? std::vector<WorkerId>() : std::move(stopped);
}

/// A rank that is stopped waits for no other.
bool StoppedPart::is_awaited_by_others(const std::vector<WorkerId>& stopped) const {
  const auto runs = [&](int rank) {
    return rank < assignment_.size() &&
           std::ranges::find(stopped, assignment_.worker(rank)) == stopped.end();
  };
  return std::ranges::any_of(store_.waiting_to_start(assignment_.generation()), runs);
}

}  // namespace hvd::launcher
