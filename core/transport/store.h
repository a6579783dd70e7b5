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
/// All keys and values of one Store.
inline constexpr size_t kMaxStoreBytes = 1 * GiB;

/// Thread-safe. A key is set once and keeps its value; setting it again replaces the value.
class Store {
 public:
  virtual ~Store() = default;
  /// Throws Error{invalid_argument} above the limits, Error{peer_lost} when the server is gone,
  /// Error{timed_out} when it does not answer.
  virtual void set(const std::string& key, ConstBytes value) = 0;
  /// Blocks until `key` is set; nothing when it is not within `timeout`. Throws Error{peer_lost}.
  virtual std::optional<ByteVector> wait(const std::string& key, Duration timeout) = 0;
  /// The value if the key is set now. Throws Error{peer_lost}.
  virtual std::optional<ByteVector> peek(const std::string& key) = 0;

  /// As wait(), but throws Error{timed_out} naming the key.
  ByteVector get(const std::string& key, Duration timeout);
};

/// Throws Error{invalid_argument}.
void check_store_limits(const std::string& key, size_t value_bytes);

}  // namespace hvd
