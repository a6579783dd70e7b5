#include <algorithm>

#include "launcher/elastic/elastic.h"
#include "launcher/elastic/questions.h"

namespace hvd::launcher::elastic {
namespace {

/// When something happens to members that have not asked, if they still do not.
TimePoint end_of_patience(const State& state) {
  TimePoint next = state.wait->since + state.settings.survivor;
  if (!state.wait->is_explained) next = std::min(next, explains_at(state));
  if (state.settings.heartbeat > Duration{})
    next = std::min(next, state.wait->stopped.due(state.settings.heartbeat));
  return next;
}

}  // namespace

std::optional<TimePoint> deadline(const State& state) {
  if (state.over) return std::nullopt;
  std::optional<TimePoint> next;
  const auto no_later = [&](TimePoint time) { next = std::min(next.value_or(time), time); };
  if (state.short_since) {
    no_later(*state.short_since + state.settings.patience);
    if (!state.is_shortage_told) no_later(tells_of_shortage_at(state));
  }
  if (state.wait && has(state, Standing::running)) no_later(end_of_patience(state));
  if (state.forming) {
    no_later(state.forming->until.value_or(TimePoint::max()));
    no_later(state.forming->stopped.due(state.settings.heartbeat));
  }
  if (state.kill_at) no_later(*state.kill_at);
  for (const auto& [host, since] : state.silent_since) no_later(since + kNoNews);
  for (const Host& host : state.hosts)
    if (host.back_at) no_later(*host.back_at);
  const bool will_tell = state.gathering_since && !state.told.added &&
                         has(state, Standing::waiting) && has(state, Standing::starting) &&
                         has(state, Standing::running) && !no_more_resets(state);
  if (will_tell) no_later(*state.gathering_since + kGathering);
  return next;
}

}  // namespace hvd::launcher::elastic
