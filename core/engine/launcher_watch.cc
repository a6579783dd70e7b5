#include "core/engine/launcher_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace hvd {

// Something between the hosts may close an idle connection of a launcher that lives.
std::optional<std::string> LauncherWatch::check() {
  if (!look_at_ || clock_.now() < *look_at_) return std::nullopt;
  if (!dialer_) {
    dialer_.emplace().dial(0, launcher_);
    give_up_at_ = clock_.now() + kToConnect;
  }
  const std::vector<Dialed> ended = dialer_->step();
  if (ended.empty() && clock_.now() < give_up_at_) {
    look_at_ = std::min(clock_.now() + kPause, give_up_at_);
    return std::nullopt;
  }
  forget();
  if (!ended.empty() && ended.front().socket) return std::nullopt;
  return fmt::format(
      "horovodrun on host {} has closed its connection to rank {}, and does not accept another one "
      "({}). The job has ended",
      launcher_.host, rank_,
      ended.empty() ? fmt::format("no answer from {}", to_text(launcher_)) : ended.front().why);
}

}  // namespace hvd
