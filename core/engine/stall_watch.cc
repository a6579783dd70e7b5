#include "core/engine/stall_watch.h"

#include <algorithm>
#include <string>

#include "core/base/log.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

// How often the watch looks at the clock, at least. If it comes later, this rank did not run: the
// process was stopped, or its machine was suspended. The other ranks of a suspended job cannot
// submit anything meanwhile, so that time does not count.
constexpr auto kBetweenLooks = 10s;
// How often the Root is asked again while an operation waits whose timeout has expired.
constexpr auto kBetweenQueries = 10s;

}  // namespace

void StallWatch::accepted(Request& request) {
  if (request.timeout.count() == 0) return;
  const TimePoint now = clock_.now();
  if (!next_timeout_) looked_at_ = now;
  // The next look puts it off with the others, if it comes late.
  request.expires = std::min(now, looked_at_ + kBetweenLooks) + request.timeout;
  next_timeout_ = earlier(next_timeout_, request.expires);
}

void StallWatch::check(std::map<uint64_t, Request>& waiting) {
  if (next_timeout_) look(waiting);
  Root* const root = control_.root();
  if (root != nullptr && root->has_report()) report(*root, *root->take_report());
  tick();
}

std::optional<TimePoint> StallWatch::deadline() const {
  return next_timeout_ ? earlier(next_tick_, std::min(*next_timeout_, looked_at_ + kBetweenLooks))
                       : next_tick_;
}

void StallWatch::look(std::map<uint64_t, Request>& waiting) {
  const TimePoint now = clock_.now();
  const Duration late = now - looked_at_ - kBetweenLooks;
  looked_at_ = now;
  if (late > Duration::zero()) put_off(waiting, late);
  if (now >= *next_timeout_) expire(waiting);
}

void StallWatch::put_off(std::map<uint64_t, Request>& waiting, Duration by) {
  *next_timeout_ += by;
  for (auto& [tag, request] : waiting) {
    if (request.expires) *request.expires += by;
  }
}

// A request whose timeout has expired expires again: the report may come to nothing.
void StallWatch::expire(std::map<uint64_t, Request>& waiting) {
  next_timeout_.reset();
  for (auto& [tag, request] : waiting) {
    if (!request.expires) continue;
    if (looked_at_ >= *request.expires) {
      control_.expire(request.group, request.signature, request.timeout);
      request.expires = looked_at_ + kBetweenQueries;
    }
    next_timeout_ = earlier(next_timeout_, request.expires);
  }
}

void StallWatch::report(Root& root, const StallReport& stalled) {
  const StallFacts facts{.process_sets = root.process_sets(),
                         .tick = knobs_.stall_check,
                         .shutdown = knobs_.stall_shutdown};
  const std::string text = describe_stall(stalled, facts);
  if (text.empty()) return;
  const bool ends_job = stall_ends_job(stalled, facts);
  log(ends_job ? LogLevel::error : LogLevel::warning, text);
  events_.stall_reported();
  if (ends_job) root.shutdown(rank_, text);
}

// Without the stall check, a query that a timeout has started still needs an end.
void StallWatch::tick() {
  const bool checks = !knobs_.stall_check_disable;
  if (!control_.collecting() && (!checks || control_.waiting() == 0)) {
    next_tick_.reset();
    return;
  }
  const TimePoint now = clock_.now();
  if (!next_tick_) {
    next_tick_ = now + knobs_.stall_check;
  } else if (now >= *next_tick_) {
    const bool has_run = now - *next_tick_ < kBetweenLooks;
    next_tick_ = now + knobs_.stall_check;
    if (has_run) control_.tick(checks);
  }
}

}  // namespace hvd
