#include "core/engine/runner.h"

#include <utility>

namespace hvd {

Runner::Progress Runner::advance() {
  if (queue_.empty()) return Progress::idle;
  Job& job = queue_.front();
  if (!job.batch) return Progress::finished;
  if (!run_) run_ = backend_.start(groups_.at(job.group), *job.batch);
  events_.advancing(job.requests, *job.batch, *run_);
  switch (run_->advance()) {
    case Run::Progress::moved:
      return Progress::moved;
    case Run::Progress::waiting:
      return Progress::waiting;
    case Run::Progress::done:
      break;
  }
  run_.reset();
  return Progress::finished;
}

Runner::Job Runner::take_finished() {
  Job job = std::move(queue_.front());
  queue_.pop_front();
  if (job.closes_group) groups_.erase(job.group);
  return job;
}

std::deque<Runner::Job>& Runner::abandon() {
  run_.reset();
  return queue_;
}

}  // namespace hvd
