#include "adapters/common/completions.h"

#include <thread>
#include <utility>

namespace hvd::adapter {
namespace {

/// Limits the blocked workers. Each one is work that waits inside the completion of other work.
constexpr int kMostWorkers = 256;

}  // namespace

/// Under mutex_.
void Completions::start_first() {
  start_worker();
  if (options_.patience.count() > 0) std::thread([this] { watch(); }).detach();
}

/// Returns whether a queued task has no idle worker. Under mutex_.
bool Completions::is_behind() const { return tasks_.size() > static_cast<size_t>(idle_workers_); }

void Completions::add(Task task) {
  const std::lock_guard lock(mutex_);
  const bool is_first = workers_ == 0;
  if (is_first) start_first();
  tasks_.push_back(std::move(task));
  if (idle_workers_ > 0) added_.notify_one();
  if (is_first || !is_behind() || watching_) return;
  if (options_.patience.count() == 0) {
    if (workers_ < kMostWorkers) start_worker();
    return;
  }
  watching_ = true;
  waiting_.notify_one();
}

bool Completions::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience,
                         [this] { return tasks_.empty() && workers_ == idle_workers_; });
}

/// Under mutex_.
void Completions::start_worker() {
  ++workers_;
  std::thread([this] { work(); }).detach();
}

void Completions::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (tasks_.empty()) {
      if (idle_workers_ >= options_.most_idle) break;
      ++idle_workers_;
      ended_.notify_all();
      added_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_workers_;
    }
    ++begun_;
    const Task task = std::exchange(tasks_.front(), {});
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
  --workers_;
  ended_.notify_all();
}

void Completions::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    waiting_.wait(lock, [this] { return watching_; });
    while (!tasks_.empty()) {
      const uint64_t before = begun_;
      waiting_.wait_for(lock, options_.patience);
      if (begun_ == before && !tasks_.empty() && workers_ < kMostWorkers) start_worker();
    }
    watching_ = false;
  }
}

}  // namespace hvd::adapter
