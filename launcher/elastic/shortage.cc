#include "launcher/elastic/shortage.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace hvd::launcher::elastic {

std::string few_are_left(size_t ready, int min) {
  const std::string workers = ready == 1 ? "1 worker is" : fmt::format("{} workers are", ready);
  return fmt::format("{} left, fewer than the {} of --min-np", workers, min);
}

std::string awaited(const State& state, size_t lacking, size_t starting) {
  std::vector<std::string> all;
  if (starting > 0)
    all.emplace_back(starting == 1 ? "a worker that is starting" : "workers that are starting");
  if (starting >= lacking) return all.front();
  if (!state.dismissed.empty()) all.emplace_back("the slot of a worker that has not ended yet");
  if (std::ranges::any_of(state.hosts, [](const Host& host) { return host.back_at.has_value(); }))
    all.emplace_back("the end of a host's cooldown");
  if (state.settings.discovers) all.emplace_back("slots from the discovery script");
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string nobody_is_left(const State& state) {
  if (!state.last_left) return "no worker is left that has the state of the job";
  const std::string& folder = state.settings.state_folder;
  return "all workers have left the job after SIGTERM" +
         (folder.empty() ? "" : "; a new start continues from the state folder " + folder);
}

}  // namespace hvd::launcher::elastic
