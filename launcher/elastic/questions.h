// Questions to the state of an elastic job, and words for what is said of it.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "launcher/elastic/elastic.h"

namespace hvd::launcher::elastic {

inline bool is_member(Standing standing) {
  return standing == Standing::running || standing == Standing::asking;
}

inline bool has(const State& state, Standing standing) {
  return std::ranges::any_of(state.workers,
                             [=](const auto& entry) { return entry.second == standing; });
}

inline bool no_more_resets(const State& state) {
  return state.settings.reset_limit && state.resets >= *state.settings.reset_limit;
}

inline int64_t seconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

/// "1 worker", "2 workers".
inline std::string count_of(size_t workers) {
  return fmt::format("{} worker{}", workers, workers == 1 ? "" : "s");
}

/// When the user is told why members wait, early enough to look at the others before they are given
/// up.
inline TimePoint explains_at(const State& state) {
  return state.wait->since + state.settings.survivor / 3;
}

/// When the user is told that the job has too few workers.
inline TimePoint tells_of_shortage_at(const State& state) {
  return *state.short_since + (state.leaving.empty() ? Duration{} : Duration{kLeaving});
}

/// nullptr: no member that is stopped can hold up others outside of operations.
inline StoppedSearch* search_now(State& state) {
  if (state.wait) return &state.wait->stopped;
  return state.forming ? &state.forming->stopped : nullptr;
}

}  // namespace hvd::launcher::elastic
