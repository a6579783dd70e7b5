#include "adapters/tensorflow/completions.h"

#include <thread>
#include <utility>

namespace hvd::tf {

Completions& Completions::instance() {
  static Completions& one = *new Completions;
  return one;
}

Completions::Completions() {
  std::thread([this] { main(); }).detach();
}

void Completions::add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) added_.notify_one();
}

void Completions::main() {
  for (;;) {
    for (const auto& task : next()) task();
  }
}

std::vector<std::function<void()>> Completions::next() {
  std::unique_lock lock(mutex_);
  added_.wait(lock, [this] { return !tasks_.empty(); });
  return std::exchange(tasks_, {});
}

}  // namespace hvd::tf
