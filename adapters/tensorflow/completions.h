// Where operations that nobody waits for end: on threads of their own.
//
// The runtime's driver says that an operation has ended, and must go on at once. TensorFlow's
// `done` may do anything: run the nodes that follow in place (an executor without threads does, and
// a pool whose queue is full), give memory back, wait for Python's lock or for a GPU. If one of
// those nodes waits for another operation, the driver would wait for itself. So would the thread
// that ends operations; while one does not come back, another goes on with what is behind it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace hvd::tf {

/// Begins tasks in the order in which they came. Any thread may call.
class Completions {
 public:
  using Task = std::function<void()>;

  /// The one of this process.
  static Completions& instance();

  /// Returns at once.
  void add(Task task);
  /// Waits until all tasks have ended, `patience` at most. Whether they have.
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
