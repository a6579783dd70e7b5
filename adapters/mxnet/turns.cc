#include "adapters/mxnet/turns.h"

#include <algorithm>

namespace hvd::mxnet {

Turns::Queue::iterator Turns::find(Queue& queue, const Call* call) {
  return std::ranges::find(queue, call, &Place::call);
}

void Turns::add(const Key& key, Call* call) {
  const std::lock_guard lock(mutex_);
  queues_[key].push_back({call, false});
}

bool Turns::ready(const Key& key, Call* call) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(key);
  if (found == queues_.end()) return true;
  Queue& queue = found->second;
  const auto place = find(queue, call);
  if (place == queue.end()) return true;
  place->is_ready = true;
  return place == queue.begin();
}

Call* Turns::remove(const Key& key, Call* call) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(key);
  if (found == queues_.end()) return nullptr;
  Queue& queue = found->second;
  const auto place = find(queue, call);
  if (place == queue.end()) return nullptr;
  const bool was_first = place == queue.begin();
  queue.erase(place);
  if (queue.empty()) {
    queues_.erase(found);
    if (queues_.empty()) emptied_.notify_all();
    return nullptr;
  }
  return was_first && queue.front().is_ready ? queue.front().call : nullptr;
}

bool Turns::wait_until_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, patience, [this] { return queues_.empty(); });
}

}  // namespace hvd::mxnet
