#include "core/transport/store_client.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

constexpr int kLauncher = -1;
/// The launcher answers at once; one that is stopped must not hold up the end of a job.
constexpr auto kAnswerTimeout = std::chrono::seconds(5);

TimePoint now() { return std::chrono::steady_clock::now(); }

// An address that nobody answers (a bridge of the server's host, say) must leave time for the next.
constexpr auto kPatienceForOneOfMany = std::chrono::seconds(2);
constexpr auto kPauseBetweenRounds = std::chrono::milliseconds(20);

/// Tries the addresses one after another.
class Dialer {
 public:
  Dialer(const std::vector<Address>& servers, const JobKey& key, int rank, TimePoint deadline,
         bool again)
      : servers_(servers), key_(key), rank_(rank), deadline_(deadline), again_(again) {}

  /// Writes where it was found to `found`.
  std::unique_ptr<Link> connect(Address& found) {
    for (;;) {
      for (const Address& server : servers_) {
        FileDescriptor socket = try_connect_tcp(server, patience(server), why_);
        if (!socket || !proves_key(socket, server)) continue;
        // While a wait() is under way, this notices a host that is gone.
        tune_tcp(socket, std::chrono::seconds(60));
        found = server;
        return std::make_unique<TcpLink>(std::move(socket), kLauncher);
      }
      if (now() >= deadline_) fail(Code::timed_out, why_);
      if (!again_) fail(Code::peer_lost, why_);
      ::poll(nullptr, 0, static_cast<int>(kPauseBetweenRounds.count()));
    }
  }

 private:
  TimePoint patience(const Address& server) const {
    const bool last = &server == &servers_.back();
    return last && !again_ ? deadline_ : std::min(deadline_, now() + kPatienceForOneOfMany);
  }

  /// Who has another key may be anybody, unless there is nobody else to ask.
  bool proves_key(const FileDescriptor& socket, const Address& server) {
    const auto refused = prove(socket, server);
    if (!refused) return true;
    why_ = refused->what();
    const bool final = !again_ || refused->code() == Code::unauthorized;
    if (final && &server == &servers_.back()) fail(refused->code(), why_);
    return false;
  }

  std::optional<Error> prove(const FileDescriptor& socket, const Address& server) try {
    Handshake handshake(Handshake::Role::dialer, key_, {kStorePurpose, rank_, kStoreGeneration});
    authenticate(socket.get(), handshake, patience(server));
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }

  const std::vector<Address>& servers_;
  const JobKey& key_;
  const int rank_;
  const TimePoint deadline_;
  const bool again_;
  std::string why_;
};

}  // namespace

StoreClient::StoreClient(const Address& server, const JobKey& key, int rank, Duration timeout)
    : StoreClient(std::vector{server}, key, rank, timeout, WhenAbsent::give_up) {}

StoreClient::StoreClient(const std::vector<Address>& servers, const JobKey& key, int rank,
                         Duration timeout, WhenAbsent when_absent)
    : channel_(Dialer(servers, key, rank, now() + timeout, when_absent == WhenAbsent::try_again)
                   .connect(server_),
               kLauncher, kStoreGeneration) {}

StoreClient::~StoreClient() { channel_.send_goodbye(); }

void StoreClient::set(const std::string& key, ConstBytes value) {
  check_store_limits(key, value.size());
  const auto answer = ask(StoreOperation::set, key, value, now() + kAnswerTimeout);
  if (!answer) fail(Code::timed_out, "the store of this job does not answer");
  if (answer->status == StoreStatus::refused) {
    fail(Code::invalid_argument, std::string(as_text(answer->value)));
  }
}

std::optional<ByteVector> StoreClient::wait(const std::string& key, Duration timeout) {
  check_store_limits(key, 0);
  auto answer = ask(StoreOperation::wait, key, {}, now() + timeout);
  if (!answer) return std::nullopt;
  return std::move(answer->value);
}

std::optional<ByteVector> StoreClient::peek(const std::string& key) {
  check_store_limits(key, 0);
  auto answer = ask(StoreOperation::peek, key, {}, std::nullopt);
  if (answer->status == StoreStatus::absent) return std::nullopt;
  return std::move(answer->value);
}

std::optional<StoreClient::Answer> StoreClient::ask(StoreOperation operation,
                                                    const std::string& key, ConstBytes value,
                                                    std::optional<TimePoint> deadline) {
  const std::lock_guard lock(mutex_);
  const uint32_t number = ++last_number_;
  channel_.send(FrameKind::control, to_bytes(StoreRequest{number, operation, key, value}));
  for (;;) {
    while (channel_.pump()) {
    }
    if (auto answer = take_answer(number)) return answer;
    if (channel_.said_goodbye()) fail(Code::peer_lost, "the store of this job was closed");
    const auto events = static_cast<short>(POLLIN | (channel_.unsent_bytes() > 0 ? POLLOUT : 0));
    if (!wait_until_ready(channel_.fd(), events,
                          deadline.value_or(now() + std::chrono::hours(1))) &&
        deadline) {
      return std::nullopt;
    }
  }
}

std::optional<StoreClient::Answer> StoreClient::take_answer(uint32_t number) {
  while (const auto frame = channel_.receive()) {
    const StoreReply reply = read_store_reply(frame->payload);
    if (reply.number != number) continue;  // of a wait that was given up
    return Answer{reply.status, ByteVector(reply.value.begin(), reply.value.end())};
  }
  return std::nullopt;
}

}  // namespace hvd
