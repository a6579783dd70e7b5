#include "core/engine/runner.h"

#include <algorithm>
#include <utility>

namespace hvd {

Progress Runner::advance() {
  if (find_ended()) return Progress::done;
  if (queue_.empty()) return Progress::waiting;
  Job& job = queue_.front();
  if (must_wait(job)) return Progress::waiting;
  if (!job.batch) return Progress::done;
  Backend& backend = backends_.of(job.batch->operation.device);
  if (!run_) run_ = backend.start(group_of(job), *job.batch);
  events_.advancing(job.requests, *job.batch, *run_);
  const Progress progress = run_->advance();
  if (progress != Progress::done && progress != Progress::launched) return progress;
  events_.moved(*job.batch, *run_, backend.own_buffers());
  if (progress == Progress::done)
    run_.reset();
  else
    keep_as_launched();
  return progress;
}

bool Runner::find_ended() {
  for (size_t i = 0; i < launched_.size(); ++i) {
    if (launched_[i].run->advance() != Progress::done) continue;
    launched_[i].run.reset();
    ended_ = i;
    return true;
  }
  return false;
}

/// Negotiation does not limit how many messages are in flight. All ranks run them in one order, so
/// the first one that has not ended anywhere is never held up.
bool Runner::must_wait(const Job& job) const {
  if (job.closes_group) return has_launched_on(job.group);
  return !job.between.empty() && job.batch->operation.device != DeviceKind::host &&
         launched_.size() > kQueuedJobs;
}

bool Runner::has_launched_on(GroupNumber group) const {
  return std::ranges::any_of(launched_,
                             [=](const Launched& one) { return one.job.group == group; });
}

// Allocates first: on bad_alloc the job must still be in the queue.
void Runner::keep_as_launched() {
  Launched& kept = launched_.emplace_back();
  kept.job = std::move(queue_.front());
  kept.run = std::move(run_);
  queue_.pop_front();
}

Runner::Job Runner::take_finished() {
  if (ended_) {
    const auto ended = launched_.begin() + static_cast<ptrdiff_t>(*std::exchange(ended_, {}));
    Job job = std::move(ended->job);
    launched_.erase(ended);
    return job;
  }
  Job job = std::move(queue_.front());
  queue_.pop_front();
  if (job.closes_group) groups_.erase(job.group);
  return job;
}

std::optional<std::chrono::nanoseconds> Runner::poll_interval_of(const Job& job) const {
  if (!job.batch) return std::nullopt;
  return backends_.of(job.batch->operation.device).poll_interval();
}

std::optional<std::chrono::nanoseconds> Runner::poll_interval() const {
  std::optional<std::chrono::nanoseconds> shortest;
  const auto add = [&](const Job& job) {
    const auto interval = poll_interval_of(job);
    if (interval) shortest = std::min(shortest.value_or(*interval), *interval);
  };
  if (!queue_.empty()) add(queue_.front());
  for (const Launched& one : launched_) add(one.job);
  return shortest;
}

void Runner::stop() {
  run_.reset();
  for (Launched& one : launched_) one.run.reset();
}

void Runner::drop_all() {
  queue_.clear();
  launched_.clear();
  ended_.reset();
}

}  // namespace hvd
