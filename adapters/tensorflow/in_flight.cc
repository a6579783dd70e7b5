#include "adapters/tensorflow/in_flight.h"

#include "adapters/tensorflow/per_process.h"

namespace hvd::tf {

InFlight& InFlight::instance() { return *per_process<InFlight>(); }

bool InFlight::add(const Key& key) {
  const std::lock_guard lock(mutex_);
  return reasons_.try_emplace(key).second;
}

bool InFlight::blame(const std::string& why) {
  const std::lock_guard lock(mutex_);
  bool is_news = false;
  for (auto& [key, reason] : reasons_) {
    if (!reason.empty()) continue;
    reason = why;
    is_news = true;
  }
  return is_news;
}

std::string InFlight::remove(const Key& key) {
  const std::lock_guard lock(mutex_);
  return reasons_.extract(key).mapped();
}

}  // namespace hvd::tf
