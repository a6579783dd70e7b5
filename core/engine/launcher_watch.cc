#include "core/engine/launcher_watch.h"

#include <fmt/core.h>

namespace hvd {

// Something between the hosts may close an idle connection of a launcher that lives.
std::optional<std::string> LauncherWatch::check() {
  if (!look_at_ || clock_.now() < *look_at_) return std::nullopt;
  look_at_.reset();
  std::string why;
  if (try_connect_tcp(launcher_, std::chrono::steady_clock::now() + kToConnect, why))
    return std::nullopt;
  return fmt::format(
      "horovodrun on host {} has closed its connection to rank {}, which {}. The job has ended",
      launcher_.host, rank_, why);
}

}  // namespace hvd
