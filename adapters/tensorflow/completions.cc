#include "adapters/tensorflow/completions.h"

#include <thread>
#include <utility>

#include "adapters/tensorflow/per_process.h"

namespace hvd::tf {
namespace {

/// A task that takes longer may be waiting for a queued task, so another worker is started.
constexpr std::chrono::milliseconds kLong{1};
/// Limits the blocked workers. Each one is a node that waits inside the `done` of another node.
constexpr int kMostWorkers = 256;

}  // namespace

Completions& Completions::instance() { return *per_process<Completions>(); }

/// Under mutex_.
void Completions::start() {
  start_worker();
  std::thread([this] { watch(); }).detach();
}

void Completions::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (workers_ == 0) start();
  tasks_.push_back(std::move(task));
  if (idle_workers_ > 0) added_.notify_one();
  if (tasks_.size() <= static_cast<size_t>(idle_workers_) || watching_) return;
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
      if (idle_workers_ > 0) break;  // one idle worker is enough
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
      waiting_.wait_for(lock, kLong);
      if (begun_ == before && !tasks_.empty() && workers_ < kMostWorkers) start_worker();
    }
    watching_ = false;
  }
}

}  // namespace hvd::tf
