// The Store that the launcher serves to the ranks over TCP. It has no thread: the launcher puts
// fd() into its own event loop and calls step() when it is readable.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/transport/channel.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"
#include "core/transport/store_messages.h"

namespace hvd {

/// Owned and driven by one thread; never blocks.
class StoreServer {
 public:
  /// Listens on `host` (empty: all addresses), on a free port when `port` is 0.
  StoreServer(const JobKey& key, const std::string& host, uint16_t port);

  uint16_t port() const { return port_; }
  /// Readable when step() has something to do.
  int fd() const { return waiter_.fd(); }
  void step();

  bool has_clients() const { return !clients_.empty(); }

  /// The launcher's own look and word.
  std::optional<ByteVector> peek(const std::string& key) const;
  void set(const std::string& key, ConstBytes value);
  /// All keys that begin with `prefix`.
  std::map<std::string, ByteVector> matching(std::string_view prefix) const;

 private:
  /// One wait at most is open for each, so that nothing grows with how often a client asks.
  struct Wait {
    uint32_t request = 0;
    std::string key;
  };
  struct Client {
    Channel channel;
    std::optional<Wait> wait{};
  };
  void admit();
  /// False when the client is to be dropped.
  bool serve(uint64_t tag, Client& client);
  void watch_unsent(uint64_t tag, Client& client);
  void answer(Client& client, const StoreRequest& request);
  static void reply(Client& client, const StoreReply& reply);
  bool has_room_for(const StoreRequest& request) const;
  /// Looks at every client: ranks are few, and each sets a key a few times in its life.
  void answer_waiting(const std::string& key, const ByteVector& value);
  void drop(uint64_t tag);

  EpollWaiter waiter_;
  Gate gate_;
  uint16_t port_ = 0;
  std::unordered_map<uint64_t, Client> clients_;  ///< by tag
  uint64_t last_tag_ = 0;                         ///< 0 is the gate's
  std::unordered_map<std::string, ByteVector> values_;
  size_t stored_bytes_ = 0;
};

}  // namespace hvd
