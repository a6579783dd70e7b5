// A fake device for tests: a thread that runs queued tasks in order. Its backend launches every
// run, which the engine polls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "core/backend/backends.h"
#include "core/base/error.h"

namespace hvd::test {

/// Supports allreduce in place of float32 that is equal on all ranks: it sends no data.
class FakeDevice final : public Backend {
 public:
  struct Options {
    uint64_t seed = 1;
    std::chrono::microseconds longest_delay{0};  ///< upper limit of the random delay of a task
    bool held = false;                           ///< runs nothing before release()
  };

  explicit FakeDevice(const Options& options)
      : options_(options),
        random_(options.seed),
        held_(options.held),
        thread_([this] { main(); }) {}
  ~FakeDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  std::string_view name() const override { return "fake device"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override {
    return std::make_unique<DeviceRun>(*this, groups.all->size(), std::move(batch));
  }

  std::optional<std::chrono::nanoseconds> poll_interval() const override {
    return std::chrono::microseconds(50);
  }

  // ---- from any thread

  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  /// The number of tasks queued so far.
  int queued() const { return queued_.load(std::memory_order_acquire); }
  /// Every run fails from now on.
  void fail() { fails_.store(true, std::memory_order_release); }

 private:
  struct Task {
    Batch batch;
    int ranks = 0;
    std::mutex mutex{};
    bool cancelled = false;         ///< under the mutex
    std::atomic<bool> done{false};  ///< release by the device, acquire by the run
  };

  class DeviceRun final : public Run {
   public:
    DeviceRun(FakeDevice& device, int ranks, Batch batch)
        : device_(device), task_(std::make_shared<Task>(std::move(batch), ranks)) {}
    ~DeviceRun() override {
      const std::lock_guard lock(task_->mutex);
      task_->cancelled = true;
    }

    Progress advance() override {
      if (device_.fails_.load(std::memory_order_acquire))
        hvd::fail(Code::internal, "the device has failed");
      if (task_->done.load(std::memory_order_acquire)) return Progress::done;
      if (!std::exchange(is_queued_, true)) device_.queue(task_);
      return Progress::launched;
    }

   private:
    FakeDevice& device_;
    std::shared_ptr<Task> task_;
    bool is_queued_ = false;
  };

  void queue(std::shared_ptr<Task> task) {
    const std::lock_guard lock(mutex_);
    stream_.push_back(std::move(task));
    queued_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
  }

  void main() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stops_ || (!held_ && !stream_.empty()); });
      if (stops_) return;
      const auto task = std::move(stream_.front());
      stream_.pop_front();
      lock.unlock();
      pass_time();
      execute(*task);
      lock.lock();
    }
  }

  void pass_time() {
    if (options_.longest_delay.count() == 0) return;
    const auto delay = std::chrono::microseconds(
        random_() % static_cast<uint64_t>(options_.longest_delay.count()));
    const auto end = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  static void execute(Task& task) {
    const std::lock_guard lock(task.mutex);
    for (const BatchTensor& tensor : task.batch.tensors) {
      auto* values = reinterpret_cast<float*>(tensor.output);
      for (int64_t i = 0; !task.cancelled && i < element_count(tensor.shape); ++i)
        values[i] *= static_cast<float>(task.ranks);
    }
    task.done.store(true, std::memory_order_release);
  }

  const Options options_;
  std::mt19937_64 random_;  ///< used by the thread
  std::atomic<int> queued_{0};
  std::atomic<bool> fails_{false};  ///< release by a test, acquire by a run

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> stream_;  ///< under mutex_
  bool held_;                                 ///< under mutex_
  bool stops_ = false;                        ///< under mutex_
  std::thread thread_;
};

}  // namespace hvd::test
