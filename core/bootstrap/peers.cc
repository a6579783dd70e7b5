#include "core/bootstrap/peers.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/transport/dialer.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"
#include "core/transport/link.h"

namespace hvd {
namespace {

// The delay between dialing one address of a rank and the next. The first, preferred one has a head
// start, and an address that does not answer (a container bridge, an unplugged cable) costs no
// more.
constexpr std::chrono::milliseconds kHeadStart{250};

constexpr uint64_t kGateTag = 0, kDialerTag = 1, kAbandonmentTag = 2;

TimePoint now() { return std::chrono::steady_clock::now(); }

class Connector {
 public:
  Connector(PeerPlan plan, const JobKey& key, const StartDeadline& deadline)
      : gate_(key, plan.mine),
        deadline_(deadline),
        abandonment_(plan.abandonment),
        awaited_(plan.accepts.begin(), plan.accepts.end()) {
    for (Dial& dial : plan.dials)
      attempts_.emplace(dial.rank, Attempt{.addresses = std::move(dial.addresses)});
    if (!awaited_.empty()) gate_.listen_on(std::move(plan.listener));
    waiter_.watch(gate_.fd(), kGateTag);
    waiter_.watch(dialer_.fd(), kDialerTag);
    if (abandonment_ != nullptr) abandonment_->watch(waiter_, kAbandonmentTag);
  }

  std::map<int, Connected> run() {
    while (!attempts_.empty() || !awaited_.empty()) {
      if (abandonment_ != nullptr) abandonment_->check();
      const TimePoint next = dial_due_addresses();
      wait_until_ready(waiter_.fd(), POLLIN, std::min(next, deadline_.at));
      if (now() >= deadline_.at) fail_missing();  // strangers may keep the waiter readable
      for (Dialed& dialed : dialer_.step()) take_dialed(std::move(dialed));
      for (Arrival& arrival : gate_.step())
        arrival.dialed_rank >= 0 ? take_proved(arrival) : take_accepted(arrival);
    }
    return std::move(connected_);
  }

 private:
  struct Attempt {
    std::vector<Address> addresses;
    size_t next = 0;                          ///< in addresses
    TimePoint due{};                          ///< when to dial that one
    bool proving = false;                     ///< a connection is in the handshake
    std::vector<FileDescriptor> connected{};  ///< to be used if that one fails
    std::string why = "its only address is loopback";
  };

  /// Returns when the next address is due.
  TimePoint dial_due_addresses() {
    TimePoint next = TimePoint::max();
    for (auto& [rank, attempt] : attempts_) {
      if (attempt.next < attempt.addresses.size() && now() >= attempt.due) {
        dialer_.dial(rank, attempt.addresses[attempt.next++]);
        attempt.due = now() + kHeadStart;
      }
      if (attempt.next < attempt.addresses.size()) next = std::min(next, attempt.due);
      fail_if_unreachable(rank, attempt);
    }
    return next;
  }

  void fail_if_unreachable(int rank, const Attempt& attempt) const {
    if (attempt.next < attempt.addresses.size() || attempt.proving || dialer_.is_dialing(rank))
      return;
    fail(Code::peer_lost, fmt::format("rank {} cannot be reached: {}", rank, attempt.why), rank);
  }

  void take_dialed(Dialed dialed) {
    Attempt& attempt = attempts_.at(dialed.id);
    if (dialed.socket) {
      attempt.connected.push_back(std::move(dialed.socket));
    } else {
      attempt.why = dialed.why;
      attempt.due = now();
    }
    prove_next(dialed.id, attempt);
  }

  /// One handshake per rank at a time, since the other side keeps the first one that succeeds.
  void prove_next(int rank, Attempt& attempt) {
    if (attempt.proving || attempt.connected.empty()) return;
    attempt.proving = true;
    gate_.dial(std::move(attempt.connected.front()), rank);
    attempt.connected.erase(attempt.connected.begin());
  }

  void take_proved(Arrival& arrival) {
    const int rank = arrival.dialed_rank;
    Attempt& attempt = attempts_.at(rank);
    if (arrival.socket && arrival.hello.rank == rank) {
      connected_[rank] = {std::move(arrival.socket), arrival.keys};
      attempts_.erase(rank);
      dialer_.forget(rank);
      return;
    }
    attempt.why = arrival.socket ? fmt::format("{} listens at one of its addresses",
                                               peer_name(arrival.hello.rank))
                                 : arrival.failure;
    attempt.proving = false;
    attempt.due = now();
    prove_next(rank, attempt);
  }

  void take_accepted(Arrival& arrival) {
    // A rank that is not expected here has the key too; its connection is closed.
    if (awaited_.erase(arrival.hello.rank) == 1) {
      connected_[arrival.hello.rank] = {std::move(arrival.socket), arrival.keys};
    }
  }

  [[noreturn]] void fail_missing() const {
    for (const auto& [rank, attempt] : attempts_) {
      if (attempt.proving) continue;
      std::string tried;
      for (const Address& address : attempt.addresses)
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", to_text(address));
      deadline_.fail_at(
          fmt::format("rank {} has joined the job but cannot be reached at {}", rank, tried), rank);
    }
    std::vector<int> missing(awaited_.begin(), awaited_.end());
    for (const auto& [rank, attempt] : attempts_) missing.push_back(rank);
    std::sort(missing.begin(), missing.end());
    deadline_.fail_at(ranks_text(missing) + (missing.size() == 1 ? " has" : " have") +
                          " joined the job but not connected to this rank",
                      missing.front());
  }

  Gate gate_;
  Dialer dialer_;
  EpollWaiter waiter_;  ///< for gate_, dialer_ and abandonment_
  const StartDeadline& deadline_;
  Abandonment* const abandonment_;
  std::set<int> awaited_;
  std::map<int, Attempt> attempts_;
  std::map<int, Connected> connected_;
};

}  // namespace

std::map<int, Connected> connect_peers(PeerPlan plan, const JobKey& key,
                                       const StartDeadline& deadline) {
  const size_t peers = plan.dials.size() + plan.accepts.size();
  make_room_for_descriptors(
      peers, fmt::format("connecting rank {} to {} other ranks by TCP", plan.mine.rank, peers));
  return Connector(std::move(plan), key, deadline).run();
}

std::vector<Address> addresses_of(const PeerCard& theirs, uint16_t port, const PeerCard& mine) {
  std::vector<Address> out;
  if (on_one_machine(theirs, mine) && !theirs.only_these_addresses) {
    out.push_back({"127.0.0.1", port});
  }
  for (const auto& host : theirs.addresses) out.push_back({host, port});
  return out;
}

}  // namespace hvd
