#include "adapters/tensorflow/in_flight.h"

#include "adapters/common/per_process.h"

namespace hvd::tf {

InFlight& InFlight::instance() { return *adapter::per_process<InFlight>(); }

bool InFlight::add(const Key& key) {
  const std::lock_guard lock(mutex_);
  return reasons_.try_emplace(key).second;
}

bool InFlight::blame(const std::string& why, uint32_t generation) {
  const std::lock_guard lock(mutex_);
  if (why_ended_.empty() || ended_generation_ != generation) {
    why_ended_ = why;
    ended_generation_ = generation;
  }
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

std::string InFlight::why_ended(uint32_t generation) const {
  const std::lock_guard lock(mutex_);
  return generation == ended_generation_ ? why_ended_ : "";
}

std::string InFlight::why_ended() const {
  const std::lock_guard lock(mutex_);
  return why_ended_;
}

}  // namespace hvd::tf
