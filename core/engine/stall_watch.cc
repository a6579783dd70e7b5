#include "core/engine/stall_watch.h"

#include <algorithm>
#include <string>

#include "core/base/log.h"

namespace hvd {
namespace {

std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

void StallWatch::accepted(Request& request) {
  if (request.timeout.count() == 0) return;
  request.expires = clock_.now() + request.timeout;
  next_timeout_ = earlier(next_timeout_, request.expires);
}

void StallWatch::check(std::map<uint64_t, Request>& waiting) {
  if (next_timeout_ && clock_.now() >= *next_timeout_) expire(waiting);
  Root* const root = control_.root();
  if (root != nullptr && root->has_report()) report(*root, *root->take_report());
  if (!knobs_.stall_check_disable) tick();
}

std::optional<TimePoint> StallWatch::deadline() const { return earlier(next_tick_, next_timeout_); }

void StallWatch::expire(std::map<uint64_t, Request>& waiting) {
  const TimePoint now = clock_.now();
  next_timeout_.reset();
  for (auto& [tag, request] : waiting) {
    if (!request.expires) continue;
    if (now < *request.expires) {
      next_timeout_ = earlier(next_timeout_, request.expires);
    } else {
      control_.expire(request.group, request.signature.name, request.timeout);
      request.expires.reset();
    }
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

void StallWatch::tick() {
  if (control_.waiting() == 0 && !control_.collecting()) {
    next_tick_.reset();
    return;
  }
  const TimePoint now = clock_.now();
  if (!next_tick_) {
    next_tick_ = now + knobs_.stall_check;
  } else if (now >= *next_tick_) {
    next_tick_ = now + knobs_.stall_check;
    control_.tick();
  }
}

}  // namespace hvd
