// The Store as a rank sees it: a connection to the StoreServer of the launcher, or of rank 0.
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

/// Thread-safe; one call at a time, so a wait() holds the others up.
class StoreClient final : public Store {
 public:
  /// Whether a server that is not there may still come.
  enum class WhenAbsent : uint8_t { give_up, try_again };

  /// Connects as `rank` within `timeout`. Throws Error{peer_lost, timed_out, unauthorized}.
  StoreClient(const Address& server, const JobKey& key, int rank, Duration timeout);
  /// The same where only some of the addresses, which are numeric, may lead to it: the first at
  /// which somebody proves the key.
  StoreClient(const std::vector<Address>& servers, const JobKey& key, int rank, Duration timeout,
              WhenAbsent when_absent);
  ~StoreClient() override;

  /// Where it was found.
  const Address& server() const { return server_; }

  void set(const std::string& key, ConstBytes value) override;
  std::optional<ByteVector> wait(const std::string& key, Duration timeout) override;
  std::optional<ByteVector> peek(const std::string& key) override;

 private:
  struct Answer {
    StoreStatus status = StoreStatus::absent;
    ByteVector value;
  };
  /// Nothing at the deadline.
  std::optional<Answer> ask(StoreOperation operation, const std::string& key, ConstBytes value,
                            std::optional<TimePoint> deadline);
  std::optional<Answer> take_answer(uint32_t number);

  Address server_;
  std::mutex mutex_;
  Channel channel_;
  uint32_t last_number_ = 0;
};

}  // namespace hvd
