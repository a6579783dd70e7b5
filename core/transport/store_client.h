// The client of a StoreServer, which runs in the launcher or in rank 0.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "core/transport/channel.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"
#include "core/transport/store.h"
#include "core/transport/store_messages.h"

namespace hvd {

/// Thread-safe. Calls are serialized, so a wait() blocks other calls.
class StoreClient final : public Store {
 public:
  /// Whether to retry while the server is not reachable.
  enum class WhenAbsent : uint8_t { give_up, try_again };
  struct Options {
    int rank = 0;  ///< to connect as
    WhenAbsent when_absent = WhenAbsent::give_up;
    Encryption encryption = Encryption::off;
  };

  /// Connects as `rank` within `timeout`. Throws Error{peer_lost, timed_out, unauthorized}.
  StoreClient(const Address& server, const JobKey& key, int rank, Duration timeout);
  /// Connects to the first of `servers` (numeric addresses) that authenticates with the key.
  StoreClient(const std::vector<Address>& servers, const JobKey& key, const Options& options,
              Duration timeout);
  ~StoreClient() override;

  /// The address that the client is connected to.
  const Address& server() const { return server_; }

  void set(const std::string& key, ConstBytes value) override;
  void set_within(const std::string& key, ConstBytes value, Duration timeout) override;
  std::optional<ByteVector> wait(const std::string& key, Duration timeout) override;
  std::optional<ByteVector> peek(const std::string& key) override;
  /// Never blocks, except for a call of another thread.
  std::optional<ByteVector> poll(const std::string& key) override;
  void stop_polling() override;
  int fd() const override { return channel_.fd(); }

 private:
  struct Answer {
    StoreStatus status = StoreStatus::absent;
    ByteVector value;
  };
  /// Returns nullopt at the deadline.
  std::optional<Answer> ask(StoreOperation operation, const std::string& key, ConstBytes value,
                            TimePoint deadline);
  std::optional<Answer> take_answer(uint32_t number);
  [[noreturn]] void fail_without_answer() const;
  static void refuse_if_refused(const Answer& answer);
  uint32_t send(StoreOperation operation, const std::string& key, ConstBytes value);
  void pump();

  Address server_;
  std::mutex mutex_;
  Channel channel_;
  uint32_t last_number_ = 0;
  std::string polled_;  ///< the key of an open request; empty: none
};

}  // namespace hvd
