#include "core/transport/store.h"

#include <fmt/core.h>

#include "core/base/error.h"

namespace hvd {

ByteVector Store::get(const std::string& key, Duration timeout) {
  if (auto value = wait(key, timeout)) return *std::move(value);
  const auto seconds = std::chrono::duration<double>(timeout).count();
  fail(Code::timed_out, fmt::format("the store key \"{}\" was not set within {} s", key, seconds));
}

void check_store_limits(const std::string& key, size_t value_bytes) {
  if (key.size() > kMaxStoreKeyBytes) {
    fail(Code::invalid_argument,
         fmt::format("a store key of {} bytes; the limit is {}", key.size(), kMaxStoreKeyBytes));
  }
  if (value_bytes > kMaxStoreValueBytes) {
    fail(Code::invalid_argument,
         fmt::format("store key \"{}\": a value of {} bytes; the limit is {}", key, value_bytes,
                     kMaxStoreValueBytes));
  }
}

}  // namespace hvd
