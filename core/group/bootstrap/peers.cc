#include "core/group/bootstrap/peers.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/transport/gate.h"
#include "core/transport/link.h"

namespace hvd {
namespace {

// An address that nobody answers (a bridge of a container's host, say) must leave time for the
// next.
constexpr std::chrono::seconds kPatienceForOneOfMany{3};

class Connector {
 public:
  Connector(PeerPlan plan, const JobKey& key, const StartDeadline& deadline)
      : gate_(key, plan.mine),
        deadline_(deadline),
        awaited_(plan.accepts.begin(), plan.accepts.end()) {
    for (Dial& dial : plan.dials)
      dials_.emplace(dial.rank,
                     Attempt{std::move(dial.addresses), 0, "it has no address but loopback"});
    if (!awaited_.empty()) gate_.listen_on(std::move(plan.listener));
  }

  std::map<int, FileDescriptor> run() {
    for (auto& [rank, attempt] : dials_) dial_next(rank, attempt);
    while (!dials_.empty() || !awaited_.empty()) {
      if (!wait_until_ready(gate_.fd(), POLLIN, deadline_.at)) fail_missing();
      for (Arrival& arrival : gate_.step()) {
        arrival.dialed_rank >= 0 ? take_dialed(arrival) : take_accepted(arrival);
      }
    }
    return std::move(connected_);
  }

 private:
  struct Attempt {
    std::vector<Address> addresses;
    size_t next = 0;
    std::string why;
  };

  void dial_next(int rank, Attempt& attempt) {
    while (attempt.next < attempt.addresses.size()) {
      const bool last = attempt.next + 1 == attempt.addresses.size();
      const TimePoint soon = std::chrono::steady_clock::now() + kPatienceForOneOfMany;
      const TimePoint until = last ? deadline_.at : std::min(deadline_.at, soon);
      const Address& address = attempt.addresses[attempt.next++];
      if (FileDescriptor socket = try_connect_tcp(address, until, attempt.why)) {
        return gate_.dial(std::move(socket), rank);
      }
    }
    fail(Code::peer_lost, fmt::format("rank {} cannot be reached: {}", rank, attempt.why), rank);
  }

  void take_dialed(Arrival& arrival) {
    const int rank = arrival.dialed_rank;
    Attempt& attempt = dials_.at(rank);
    if (arrival.socket && arrival.hello.rank == rank) {
      connected_[rank] = std::move(arrival.socket);
      dials_.erase(rank);
      return;
    }
    attempt.why = arrival.socket ? fmt::format("{} answers at {}", peer_name(arrival.hello.rank),
                                               to_text(attempt.addresses[attempt.next - 1]))
                                 : arrival.failure;
    dial_next(rank, attempt);
  }

  void take_accepted(Arrival& arrival) {
    // Anybody else has the key but no business here, and is hung up on.
    if (awaited_.erase(arrival.hello.rank) == 1) {
      connected_[arrival.hello.rank] = std::move(arrival.socket);
    }
  }

  [[noreturn]] void fail_missing() const {
    std::vector<int> missing(awaited_.begin(), awaited_.end());
    for (const auto& [rank, attempt] : dials_) missing.push_back(rank);
    std::sort(missing.begin(), missing.end());
    deadline_.fail_at(ranks_text(missing) + (missing.size() == 1 ? " has" : " have") +
                          " come but not connected to this rank",
                      missing.front());
  }

  Gate gate_;
  const StartDeadline& deadline_;
  std::set<int> awaited_;
  std::map<int, Attempt> dials_;
  std::map<int, FileDescriptor> connected_;
};

}  // namespace

std::map<int, FileDescriptor> connect_peers(PeerPlan plan, const JobKey& key,
                                            const StartDeadline& deadline) {
  return Connector(std::move(plan), key, deadline).run();
}

std::vector<Address> addresses_of(const Card& theirs, uint16_t port, const Card& mine) {
  std::vector<Address> out;
  if (on_one_machine(theirs, mine) && !theirs.only_these_addresses) {
    out.push_back({"127.0.0.1", port});
  }
  for (const auto& host : theirs.addresses) out.push_back({host, port});
  return out;
}

}  // namespace hvd
