#include "core/transport/mem_store.h"

namespace hvd {

void MemStore::set(const std::string& key, ConstBytes value) {
  check_store_limits(key, value.size());
  const std::lock_guard lock(mutex_);
  values_[key] = ByteVector(value.begin(), value.end());
  changed_.notify_all();
}

std::optional<ByteVector> MemStore::wait(const std::string& key, Duration timeout) {
  check_store_limits(key, 0);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return values_.contains(key); });
  return find(key);
}

std::optional<ByteVector> MemStore::peek(const std::string& key) {
  check_store_limits(key, 0);
  const std::lock_guard lock(mutex_);
  return find(key);
}

std::optional<ByteVector> MemStore::find(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

}  // namespace hvd
