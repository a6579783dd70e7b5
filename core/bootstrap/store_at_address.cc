#include "core/bootstrap/store_at_address.h"

#include <fmt/core.h>
#include <poll.h>

#include <chrono>
#include <vector>

#include "core/base/error.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

constexpr const char* kNameKey = "served";
constexpr const char* kNeverSet = "never";
constexpr int kRetryMs = 20;
/// A Store that is closing cannot be distinguished from one with another key.
constexpr std::chrono::seconds kClosingTimeout{1};

class Connector {
 public:
  Connector(const std::string& name, const Address& server, const JobKey& key,
            const StoreClient::Options& options, const StartDeadline& deadline)
      : name_(name), server_(server), key_(key), options_(options), deadline_(deadline) {
    options_.when_absent = StoreClient::WhenAbsent::try_again;
  }

  std::unique_ptr<Store> run() {
    for (;;) {
      if (auto store = try_once()) return store;
      ::poll(nullptr, 0, kRetryMs);
    }
  }

 private:
  /// Nothing if the Store closes or may be closing. A boundary: if it is of an earlier generation,
  /// that is not an error.
  std::unique_ptr<Store> try_once() try {
    auto store =
        std::make_unique<StoreClient>(std::vector{server_}, key_, options_, deadline_.left());
    if (options_.rank == 0) store->set(kNameKey, as_bytes(name_));
    const auto served = store->wait(kNameKey, deadline_.left());
    if (served && as_text(*served) == name_) return store;
    store->wait(kNeverSet, deadline_.left());  // until it closes
    fail_as_other_job(served ? "only " + std::string(as_text(*served)) : "none");
  } catch (const Error& error) {
    const TimePoint now = std::chrono::steady_clock::now();
    const bool has_closed = error.code() == Code::peer_lost;
    const bool may_be_closing = error.code() == Code::unauthorized && now < refused_until_;
    if (!has_closed && !may_be_closing) fail(error.code(), error.what(), error.rank());
    if (has_closed) refused_until_ = now + kClosingTimeout;
    return nullptr;
  }

  [[noreturn]] void fail_as_other_job(const std::string& served) const {
    deadline_.fail_at(fmt::format("waited for the job {} at {} (the number counts the calls of "
                                  "init), but rank 0 served {} there",
                                  name_, to_text(server_), served),
                      0);
  }

  const std::string& name_;
  const Address& server_;
  const JobKey& key_;
  StoreClient::Options options_;
  const StartDeadline& deadline_;
  TimePoint refused_until_ = std::chrono::steady_clock::now() + kClosingTimeout;
};

}  // namespace

std::unique_ptr<Store> connect_at_address(const std::string& name, const Address& server,
                                          const JobKey& key, const StoreClient::Options& options,
                                          const StartDeadline& deadline) {
  return Connector(name, server, key, options, deadline).run();
}

}  // namespace hvd
