// Threads that complete asynchronous operations of a framework. Owned by the process, one instance
// per framework.
//
// To complete an operation, a framework may do anything: run what follows in place (as TensorFlow's
// executor without threads and XLA's executor do), free memory, wait for the GIL or for a GPU. The
// progress thread must not block. A single completing thread could wait for itself, so another
// thread continues with the queue while one is blocked.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace hvd::adapter {

/// Starts tasks in the order of add(). Any thread may call any function.
class Completions {
 public:
  using Task = std::function<void()>;
  struct Options {
    /// A task that takes longer may be waiting for a queued task, so another worker is started.
    /// 0: tasks are long, so a worker is started if none is idle.
    std::chrono::milliseconds patience{1};
    /// Workers beyond this number end when they have no task.
    int most_idle = 1;
  };

  explicit Completions(Options options) : options_(options) {}

  /// Queues a task. Does not block.
  void add(Task task);
  /// Waits until all tasks have ended, at most for `patience`. Returns whether they have.
  bool drain(std::chrono::milliseconds patience);

 private:
  void start_first();
  bool is_behind() const;
  void start_worker();
  void work();
  [[noreturn]] void watch();

  const Options options_;
  std::mutex mutex_;
  // All of these are under mutex_.
  std::condition_variable added_;    ///< for idle workers
  std::condition_variable waiting_;  ///< for the watcher: a task waits behind a busy worker
  std::condition_variable ended_;    ///< for drain
  std::deque<Task> tasks_;
  uint64_t begun_ = 0;  ///< tasks that left the queue
  int workers_ = 0, idle_workers_ = 0;
  bool watching_ = false;
};

}  // namespace hvd::adapter
