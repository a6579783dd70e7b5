// Threads that complete asynchronous operations.
//
// The progress thread reports the end of an operation and must not block. TensorFlow's `done` may
// do anything: run successor nodes in place (as an executor without threads or a pool with a full
// queue does), free memory, wait for the GIL or for a GPU. If such a node waited for another
// operation, the progress thread would wait for itself. A single completing thread would have the
// same problem, so another thread continues with the queue while one is blocked.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace hvd::tf {

/// Starts tasks in the order of add(). Any thread may call any function.
class Completions {
 public:
  using Task = std::function<void()>;

  /// The instance of this process.
  static Completions& instance();

  /// Queues a task. Does not block.
  void add(Task task);
  /// Waits until all tasks have ended, at most for `patience`. Returns whether they have.
  bool drain(std::chrono::milliseconds patience);

 private:
  void start();
  void start_worker();
  void work();
  [[noreturn]] void watch();

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

}  // namespace hvd::tf
