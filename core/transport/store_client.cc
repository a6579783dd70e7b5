#include "core/transport/store_client.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/transport/dialer.h"
#include "core/transport/encrypted_link.h"

namespace hvd {
namespace {

constexpr int kLauncher = -1;
/// Timeout for an answer: the launcher answers at once, and a stopped launcher must not delay the
/// end of a job.
constexpr auto kAnswerTimeout = std::chrono::seconds(5);
/// For an answer that only makes an error more precise, after a timeout.
constexpr auto kPeekTimeout = std::chrono::seconds(1);

TimePoint now() { return std::chrono::steady_clock::now(); }

// Interval between connection attempts: the first address, the best one, gets a head start, and an
// unreachable address (a bridge of the server's host, an unplugged cable) costs no more than this.
constexpr auto kHeadStart = std::chrono::milliseconds(250);
// Timeout for the handshake: an unrelated process may listen at an address and never answer.
constexpr auto kPatienceForOneOfMany = std::chrono::seconds(2);
constexpr auto kPauseBetweenRounds = std::chrono::milliseconds(20);

/// Searches for the server at all its addresses.
class Search {
 public:
  Search(const std::vector<Address>& servers, const JobKey& key,
         const StoreClient::Options& options, TimePoint deadline)
      : servers_(servers),
        key_(key),
        mine_{kStorePurpose, options.rank, kStoreGeneration, options.encryption},
        deadline_(deadline),
        again_(options.when_absent == StoreClient::WhenAbsent::try_again) {}

  /// Stores the address of the server in `found`.
  std::unique_ptr<Link> run(Address& found) {
    for (;;) {
      FileDescriptor socket = servers_.size() == 1 ? at_the_only_one() : at_the_first_to_answer();
      if (socket) {
        // Detects the loss of the server's host during a wait().
        tune_tcp(socket, std::chrono::seconds(60));
        found = found_;
        return make_tcp_link(std::move(socket), kLauncher, keys_);
      }
      fail_if_hopeless();
      reasons_.clear();
      refused_.reset();
      ::poll(nullptr, 0, static_cast<int>(kPauseBetweenRounds.count()));
    }
  }

 private:
  /// Connects to the only server, whose address may be a host name.
  FileDescriptor at_the_only_one() {
    std::string why;
    FileDescriptor socket = try_connect_tcp(
        servers_[0], again_ ? std::min(deadline_, now() + kPatienceForOneOfMany) : deadline_, why);
    if (!socket) reasons_.push_back(why);
    if (!socket || !proves_key(socket, servers_[0], !again_)) return FileDescriptor();
    return socket;
  }

  FileDescriptor at_the_first_to_answer() {
    constexpr int kServer = 0;
    Dialer dialer;
    TimePoint due{};
    for (size_t next = 0; next < servers_.size() || dialer.is_dialing(kServer);) {
      if (next < servers_.size() && now() >= due) {
        dialer.dial(kServer, servers_[next++]);
        due = now() + kHeadStart;
      }
      const bool more = next < servers_.size();
      wait_until_ready(dialer.fd(), POLLIN, more ? std::min(due, deadline_) : deadline_);
      std::vector<Dialed> ended = dialer.step();
      std::ranges::stable_partition(ended, [](const Dialed& one) { return !one.socket; });
      for (Dialed& dialed : ended) {
        const bool is_last = !more && !dialer.is_dialing(kServer) && &dialed == &ended.back();
        if (!dialed.socket) {
          reasons_.push_back(dialed.why);
        } else if (proves_key(dialed.socket, dialed.address, is_last)) {
          return std::move(dialed.socket);
        }
        due = now();  // the next attempt need not wait for this one
      }
      if (now() >= deadline_) return FileDescriptor();
    }
    return FileDescriptor();
  }

  /// A server with another key is skipped unless it is the last candidate (`is_last`).
  bool proves_key(const FileDescriptor& socket, const Address& server, bool is_last) {
    const auto refused =
        prove(socket, is_last ? deadline_ : std::min(deadline_, now() + kPatienceForOneOfMany));
    if (!refused) {
      found_ = server;
      return true;
    }
    reasons_.push_back(fmt::format("{}: {}", to_text(server), refused->what()));
    refused_ = refused->code();
    return false;
  }

  std::optional<Error> prove(const FileDescriptor& socket, TimePoint until) try {
    Handshake handshake(Handshake::Role::dialer, key_, mine_);
    authenticate(socket.get(), handshake, until);
    keys_ = handshake.keys();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }

  void fail_if_hopeless() const {
    std::string why = fmt::format("{}", fmt::join(reasons_, "; "));
    if (why.empty()) {
      why = "no answer from ";
      for (const Address& one : servers_)
        why += fmt::format("{}{}", &one == &servers_.front() ? "" : ", ", to_text(one));
    }
    if (refused_ && (!again_ || *refused_ == Code::unauthorized)) fail(*refused_, why);
    if (now() >= deadline_) fail(Code::timed_out, why);
    if (!again_) fail(Code::peer_lost, why);
  }

  const std::vector<Address>& servers_;
  const JobKey& key_;
  const Hello mine_;
  const TimePoint deadline_;
  const bool again_;
  Address found_;
  std::optional<SessionKeys> keys_;
  std::vector<std::string> reasons_;
  std::optional<Code> refused_;  ///< a server answered but did not prove the key
};

}  // namespace

StoreClient::StoreClient(const Address& server, const JobKey& key, int rank, Duration timeout)
    : StoreClient(std::vector{server}, key, {.rank = rank}, timeout) {}

StoreClient::StoreClient(const std::vector<Address>& servers, const JobKey& key,
                         const Options& options, Duration timeout)
    : channel_(Search(servers, key, options, now() + timeout).run(server_), kLauncher,
               kStoreGeneration) {}

StoreClient::~StoreClient() { channel_.send_goodbye(); }

void StoreClient::set(const std::string& key, ConstBytes value) {
  set_within(key, value, kAnswerTimeout);
}

void StoreClient::set_within(const std::string& key, ConstBytes value, Duration timeout) {
  check_store_limits(key, value.size());
  const auto answer = ask(StoreOperation::set, key, value, now() + timeout);
  if (!answer) fail_without_answer();
  if (answer->status == StoreStatus::refused) {
    fail(Code::invalid_argument, std::string(as_text(answer->value)));
  }
}

std::optional<ByteVector> StoreClient::wait(const std::string& key, Duration timeout) {
  check_store_limits(key, 0);
  auto answer = ask(StoreOperation::wait, key, {}, now() + timeout);
  if (!answer) return std::nullopt;
  refuse_if_refused(*answer);
  return std::move(answer->value);
}

std::optional<ByteVector> StoreClient::poll(const std::string& key) {
  check_store_limits(key, 0);
  const std::lock_guard lock(mutex_);
  if (polled_ != key) {
    send(StoreOperation::wait, key, {});
    polled_ = key;
  }
  pump();
  auto answer = take_answer(last_number_);
  if (!answer) return std::nullopt;
  polled_.clear();
  refuse_if_refused(*answer);
  return std::move(answer->value);
}

/// The answer is skipped by the next call.
void StoreClient::stop_polling() {
  const std::lock_guard lock(mutex_);
  if (!polled_.empty()) send(StoreOperation::peek, polled_, {});
  polled_.clear();
  pump();
}

std::optional<ByteVector> StoreClient::peek(const std::string& key) {
  check_store_limits(key, 0);
  auto answer = ask(StoreOperation::peek, key, {}, now() + kPeekTimeout);
  if (!answer) fail_without_answer();
  if (answer->status == StoreStatus::absent) return std::nullopt;
  return std::move(answer->value);
}

void StoreClient::fail_without_answer() const {
  fail(Code::timed_out,
       fmt::format("the store of this job, at {}, does not answer", to_text(server_)));
}

void StoreClient::refuse_if_refused(const Answer& answer) {
  if (answer.status == StoreStatus::refused)
    fail(Code::peer_lost, std::string(as_text(answer.value)));
}

std::optional<StoreClient::Answer> StoreClient::ask(StoreOperation operation,
                                                    const std::string& key, ConstBytes value,
                                                    TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  const uint32_t number = send(operation, key, value);
  polled_.clear();  // the server has at most one open request per client
  for (;;) {
    pump();
    if (auto answer = take_answer(number)) return answer;
    const auto events = static_cast<short>(POLLIN | (channel_.unsent_bytes() > 0 ? POLLOUT : 0));
    if (!wait_until_ready(channel_.fd(), events, deadline)) return std::nullopt;
  }
}

uint32_t StoreClient::send(StoreOperation operation, const std::string& key, ConstBytes value) {
  const uint32_t number = ++last_number_;
  channel_.send(FrameKind::control, to_bytes(StoreRequest{number, operation, key, value}));
  return number;
}

/// The error tells where the launcher is.
void StoreClient::pump() try {
  while (channel_.pump()) {
  }
} catch (const Error& error) {
  fail(error.code(),
       fmt::format("the store of this job, at {}, is lost: {}", to_text(server_), error.what()),
       error.rank());
}

std::optional<StoreClient::Answer> StoreClient::take_answer(uint32_t number) {
  while (const auto frame = channel_.receive()) {
    const StoreReply reply = read_store_reply(frame->payload);
    if (reply.number != number) continue;  // answer to an abandoned wait
    return Answer{reply.status, ByteVector(reply.value.begin(), reply.value.end())};
  }
  if (channel_.said_goodbye()) fail(Code::peer_lost, "the store of this job was closed");
  return std::nullopt;
}

}  // namespace hvd
