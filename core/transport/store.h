// A key-value store with blocking wait, used for the rendezvous of a job's ranks. horovodrun serves
// one over TCP; tests use one in memory.
#pragma once

#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = 16 * MiB;
/// Total size of all keys and values of one Store.
inline constexpr size_t kMaxStoreBytes = 1 * GiB;

/// Thread-safe. Setting a key again replaces its value.
class Store {
 public:
  virtual ~Store() = default;
  /// Throws Error{invalid_argument} above the limits, Error{peer_lost} if the server is lost,
  /// Error{timed_out} when it does not answer.
  virtual void set(const std::string& key, ConstBytes value) = 0;
  /// The same, but waits for an answer for `timeout` only: what was sent may arrive later.
  virtual void set_within(const std::string& key, ConstBytes value, Duration /*timeout*/) {
    set(key, value);
  }
  /// Blocks until `key` is set and returns its value; nullopt after `timeout`. Throws
  /// Error{peer_lost}.
  virtual std::optional<ByteVector> wait(const std::string& key, Duration timeout) = 0;
  /// Returns the value if the key is set, without waiting for it. Throws Error{peer_lost}, and
  /// Error{timed_out} when the server does not answer.
  virtual std::optional<ByteVector> peek(const std::string& key) = 0;
  /// The same, for a caller that waits for other things too: a request stays open until the next
  /// call for another key. Throws Error{peer_lost} also if the server refuses to wait for the key.
  virtual std::optional<ByteVector> poll(const std::string& key) { return peek(key); }
  /// Ends the request that poll() has left open, without an answer. Throws Error{peer_lost}.
  virtual void stop_polling() {}
  /// Readable when poll() has something to do; -1: never.
  virtual int fd() const { return -1; }

  /// Like wait(), but throws Error{timed_out} naming the key.
  ByteVector get(const std::string& key, Duration timeout);
};

/// Throws Error{invalid_argument} if a limit is exceeded.
void check_store_limits(const std::string& key, size_t value_bytes);

}  // namespace hvd
