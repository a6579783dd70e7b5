// Key to bytes, with wait: how the ranks of a job first find each other. horovodrun serves one over
// TCP; tests use one in memory.
#pragma once

#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = 16 * MiB;

/// Thread-safe. A key is set once and keeps its value; setting it again replaces the value.
class Store {
 public:
  virtual ~Store() = default;
  /// Throws Error{invalid_argument} above the limits, Error{peer_lost} when the server is gone.
  virtual void set(const std::string& key, ConstBytes value) = 0;
  /// Blocks until `key` is set. Throws Error{timed_out} naming the key, Error{peer_lost}.
  virtual ByteVector get(const std::string& key, Duration timeout) = 0;
  /// The value if the key is set now.
  virtual std::optional<ByteVector> peek(const std::string& key) = 0;
};

}  // namespace hvd
