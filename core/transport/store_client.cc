#include "core/transport/store_client.h"

#include <poll.h>

#include "core/base/error.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

constexpr int kLauncher = -1;
/// The launcher answers at once; one that is stopped must not hold up the end of a job.
constexpr auto kAnswerTimeout = std::chrono::seconds(5);

TimePoint now() { return std::chrono::steady_clock::now(); }

std::unique_ptr<Link> connect_to(const Address& server, const JobKey& key, int rank,
                                 TimePoint deadline) {
  FileDescriptor socket = connect_tcp(server, deadline);
  // While a wait() is under way, this notices a host that is gone.
  tune_tcp(socket, std::chrono::seconds(60));
  Handshake handshake(Handshake::Role::dialer, key, {kStorePurpose, rank, kStoreGeneration});
  authenticate(socket.get(), handshake, deadline);
  return std::make_unique<TcpLink>(std::move(socket), kLauncher);
}

}  // namespace

StoreClient::StoreClient(const Address& server, const JobKey& key, int rank, Duration timeout)
    : channel_(connect_to(server, key, rank, now() + timeout), kLauncher, kStoreGeneration) {}

StoreClient::~StoreClient() { channel_.send_goodbye(); }

void StoreClient::set(const std::string& key, ConstBytes value) {
  check_store_limits(key, value.size());
  const auto answer = ask(StoreOperation::set, key, value, now() + kAnswerTimeout);
  if (!answer) fail(Code::timed_out, "the launcher does not answer");
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
    if (channel_.said_goodbye()) fail(Code::peer_lost, "the launcher closed its store");
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
