// Where operations that nobody waits for end: on a thread of their own.
//
// The runtime's driver says that an operation has ended, and must go on at once. TensorFlow's
// `done` may do anything: run the nodes that follow in place (an executor without threads does, and
// a pool whose queue is full), give memory back, wait for Python's lock or for a GPU. If one of
// those nodes waits for another operation, the driver would wait for itself.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace hvd::tf {

/// Runs tasks one after another, in the order in which they came. Any thread may add one.
class Completions {
 public:
  /// The one of this process. Never destroyed: a node may end at the very end of the process.
  static Completions& instance();

  /// Returns at once.
  void add(std::function<void()> task);

 private:
  Completions();
  [[noreturn]] void main();
  std::vector<std::function<void()>> next();

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::function<void()>> tasks_;  ///< under mutex_
};

}  // namespace hvd::tf
