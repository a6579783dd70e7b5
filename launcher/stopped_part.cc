#include "launcher/stopped_part.h"

#include <algorithm>

namespace hvd::launcher {

void StoppedPart::look(const LookForStopped& look, TimePoint now) {
  only_in_init_ = look.only_in_init;
  if (!only_in_init_ || !store_.waiting_to_start(assignment_.generation()).empty())
    dump_.look_for_stopped(now);
}

/// A rank that is stopped waits for no other.
std::vector<WorkerId> StoppedPart::take() {
  std::vector<WorkerId> stopped = dump_.take_stopped();
  if (stopped.empty() || !only_in_init_) return stopped;
  const auto runs = [&](int rank) {
    return rank < assignment_.size() &&
           std::ranges::find(stopped, assignment_.worker(rank)) == stopped.end();
  };
  const bool is_awaited =
      std::ranges::any_of(store_.waiting_to_start(assignment_.generation()), runs);
  return is_awaited ? stopped : std::vector<WorkerId>();
}

}  // namespace hvd::launcher
