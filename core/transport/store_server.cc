#include "core/transport/store_server.h"

#include <fmt/core.h>

#include <limits>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/transport/encrypted_link.h"
#include "core/transport/job_number.h"
#include "core/transport/link.h"
#include "core/transport/socket.h"
#include "core/transport/store.h"

namespace hvd {
namespace {

constexpr uint64_t kGateTag = 0;
constexpr int kLauncher = -1;
// Keepalive for hosts that disappear without closing the connection; the server does not wait for
// them.
constexpr std::chrono::seconds kClientTimeout{60};
// The answer to the current wait and to an abandoned one.
constexpr size_t kMaxUnreadAnswerBytes = 2 * kMaxStoreValueBytes;

}  // namespace

StoreServer::StoreServer(const JobKey& key, const std::string& host, uint16_t port)
    : gate_(key, {kStorePurpose, kLauncher, kStoreGeneration, Encryption::as_dialed}) {
  FileDescriptor listener = listen_tcp(host, port);
  port_ = port_of(listener);
  gate_.listen_on(std::move(listener));
  waiter_.watch(gate_.fd(), kGateTag);
}

void StoreServer::step() {
  std::vector<uint64_t> ready;
  waiter_.poll(ready);
  for (const uint64_t tag : ready) {
    if (tag == kGateTag) {
      admit();
    } else if (const auto found = clients_.find(tag); found != clients_.end()) {
      if (!serve(tag, found->second)) drop(tag);
    }
  }
}

void StoreServer::admit() {
  for (Arrival& arrival : gate_.step()) {
    tune_tcp(arrival.socket, kClientTimeout);
    const uint64_t tag = ++last_tag_;
    const int rank = arrival.hello.rank;
    const int fd = arrival.socket.get();
    auto link = make_tcp_link(std::move(arrival.socket), rank, arrival.keys);
    clients_.emplace(tag, Client{Channel(std::move(link), rank, kStoreGeneration)});
    waiter_.watch(fd, tag);
  }
}

/// Error boundary: a client that disconnects or sends invalid messages is dropped; the other
/// clients are still served.
bool StoreServer::serve(uint64_t tag, Client& client) try {
  while (client.channel.pump()) {
    while (const auto frame = client.channel.receive()) {
      answer(client, read_store_request(frame->payload));
    }
  }
  watch_unsent(tag, client);
  return !client.channel.said_goodbye();
} catch (const Error& error) {
  log(LogLevel::debug, std::string("the store drops a client: ") + error.what());
  return false;
}

void StoreServer::watch_unsent(uint64_t tag, Client& client) {
  waiter_.watch_writable(client.channel.fd(), tag, client.channel.unsent_bytes() > 0);
}

void StoreServer::answer(Client& client, const StoreRequest& request) {
  // A client that has not read its previous answers may not send more requests.
  if (client.channel.unsent_bytes() > kMaxUnreadAnswerBytes) {
    fail(Code::internal, fmt::format("{} sends store requests without reading the answers",
                                     peer_name(client.channel.peer())));
  }
  client.wait.reset();
  if (request.operation == StoreOperation::set) {
    if (!has_room_for(request)) {
      const auto why = as_bytes("the store is full");
      return reply(client, {request.number, StoreStatus::refused, why});
    }
    set(request.key, request.value);
    return reply(client, {request.number, StoreStatus::stored, {}});
  }
  if (const auto found = values_.find(request.key); found != values_.end()) {
    return reply(client, {request.number, StoreStatus::found, found->second});
  }
  if (request.operation == StoreOperation::peek) {
    return reply(client, {request.number, StoreStatus::absent, {}});
  }
  if (const std::string* const why = why_refused(request.key))
    return reply(client, {request.number, StoreStatus::refused, as_bytes(*why)});
  client.wait = Wait{request.number, request.key};
}

void StoreServer::reply(Client& client, const StoreReply& reply) {
  client.channel.send(FrameKind::control, to_bytes(reply));
}

bool StoreServer::has_room_for(const StoreRequest& request) const {
  const size_t bytes = request.key.size() + request.value.size();
  return request.value.size() <= kMaxStoreValueBytes && stored_bytes_ + bytes <= kMaxStoreBytes;
}

std::optional<ByteVector> StoreServer::peek(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

void StoreServer::set(const std::string& key, ConstBytes value) {
  check_store_limits(key, value.size());
  const auto [entry, added] = values_.try_emplace(key);
  if (added) stored_bytes_ += key.size();
  stored_bytes_ += value.size();
  stored_bytes_ -= entry->second.size();
  entry->second.assign(value.begin(), value.end());
  answer_waiting(key, entry->second);
}

const std::string* StoreServer::why_refused(const std::string& key) const {
  if (why_no_start_ && job_of_start_key(key)) return &*why_no_start_;
  const auto number = job_of_key(key);
  return number && *number < abandoned_before_ ? &why_abandoned_ : nullptr;
}

void StoreServer::abandon_jobs_before(uint32_t number, const std::string& why) {
  abandoned_before_ = number;
  why_abandoned_ = why;
  refuse_waiting();
}

void StoreServer::abandon_all_jobs(const std::string& why) {
  abandon_jobs_before(std::numeric_limits<uint32_t>::max(), why);
}

void StoreServer::refuse_starts(const std::string& why) {
  if (!why_no_start_) why_no_start_ = why;
  refuse_waiting();
}

void StoreServer::refuse_waiting() {
  for (auto& [tag, client] : clients_) {
    const std::string* const why = client.wait ? why_refused(client.wait->key) : nullptr;
    if (why == nullptr) continue;
    reply(client, {client.wait->request, StoreStatus::refused, as_bytes(*why)});
    client.wait.reset();
    watch_unsent(tag, client);
  }
}

std::set<int> StoreServer::waiting_to_start(uint32_t generation) const {
  std::set<int> ranks;
  for (const auto& [tag, client] : clients_) {
    const auto job = client.wait ? job_of_start_key(client.wait->key) : std::nullopt;
    if (job && launcher_generation(*job) == generation) ranks.insert(client.channel.peer());
  }
  return ranks;
}

void StoreServer::forget_jobs_before(uint32_t number) {
  std::erase_if(values_, [&](const auto& entry) {
    const auto job = job_of_key(entry.first);
    if (!job || *job >= number) return false;
    stored_bytes_ -= entry.first.size() + entry.second.size();
    return true;
  });
}

void StoreServer::forget(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  stored_bytes_ -= key.size() + found->second.size();
  values_.erase(found);
}

std::map<std::string, ByteVector> StoreServer::matching(std::string_view prefix) const {
  std::map<std::string, ByteVector> found;
  for (const auto& [key, value] : values_)
    if (key.starts_with(prefix)) found.emplace(key, value);
  return found;
}

void StoreServer::answer_waiting(const std::string& key, const ByteVector& value) {
  for (auto& [tag, client] : clients_) {
    if (!client.wait || client.wait->key != key) continue;
    reply(client, {client.wait->request, StoreStatus::found, value});
    client.wait.reset();
    watch_unsent(tag, client);
  }
}

void StoreServer::drop(uint64_t tag) {
  const auto found = clients_.find(tag);
  HVD_ASSERT(found != clients_.end());
  waiter_.forget(found->second.channel.fd());
  clients_.erase(found);
}

}  // namespace hvd
