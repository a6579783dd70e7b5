// Ranks that connect to each other, over real sockets and in real time: late ones, ones that dial
// several times, attempts that are given up half way, and further connections of ranks that have
// one already. Drawn from seeds, but the order in which sockets become ready is not.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/peers.h"
#include "core/sim/seeds.h"
#include "core/transport/gate.h"
#include "core/transport/socket.h"

namespace hvd::sim {
namespace {

using std::chrono_literals::operator""s;

constexpr std::chrono::milliseconds kLatest{400};  // later than the second dial of a rank
constexpr size_t kAtATime = 16;                    // they mostly wait
using Connections = std::map<int, Connected>;

class Connecting {
 public:
  explicit Connecting(uint64_t seed) : random_(seed), key_(make_job_key()) {
    size_ = 2 + below(3);
    dead_ = port_of(listen_tcp("127.0.0.1", 0));
    for (int rank = 0; rank < size_; ++rank) {
      listeners_.push_back(listen_tcp("127.0.0.1", 0));
      ports_.push_back(port_of(listeners_.back()));
    }
  }

  /// Returns the first failure, if any.
  std::optional<std::string> run() {
    std::vector<std::future<Connections>> ranks;
    for (int rank = 0; rank < size_; ++rank) give_up_attempts_at(rank);
    for (int rank = 0; rank < size_; ++rank) {
      const Duration late = chance(30) ? std::chrono::milliseconds(below(kLatest.count()))
                                       : std::chrono::milliseconds(0);
      ranks.push_back(std::async(std::launch::async, [this, late, plan = plan_of(rank),
                                                      again = plan_of_another(rank)]() mutable {
        std::this_thread::sleep_for(late);
        Connections made = connect_peers(std::move(plan), key_, StartDeadline(30s));
        if (again) try_again(std::move(*again));
        return made;
      }));
    }
    std::vector<Connections> all;
    try {
      for (auto& rank : ranks) all.push_back(rank.get());
    } catch (const Error& error) {
      return error.what();
    }
    return difference(all);
  }

 private:
  int below(int64_t limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  Address address(int rank) const { return {"127.0.0.1", ports_[static_cast<size_t>(rank)]}; }

  /// Sockets that say nothing, or only the beginning of a handshake; some are closed at once.
  void give_up_attempts_at(int rank) {
    for (int left = below(4); left > 0; --left) {
      FileDescriptor socket = connect_tcp(address(rank), std::chrono::steady_clock::now() + 30s);
      const bool closes = chance(50);
      if (chance(50)) {
        auto attempt = std::make_unique<Gate>(key_, hello_of(size_ - 1));
        attempt->dial(std::move(socket), rank);
        if (!closes) begun_.push_back(std::move(attempt));
      } else if (!closes) {
        silent_.push_back(std::move(socket));
      }
    }
  }

  static Hello hello_of(int rank) { return {"data", rank, 1}; }

  PeerPlan plan_of(int rank) {
    PeerPlan plan;
    plan.mine = hello_of(rank);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer < rank) plan.dials.push_back({peer, addresses_of_one(peer)});
      if (peer > rank) plan.accepts.push_back(peer);
    }
    plan.listener = std::move(listeners_[static_cast<size_t>(rank)]);
    return plan;
  }

  /// Of the same rank, or of one that nobody expects.
  std::optional<PeerPlan> plan_of_another(int rank) {
    if (rank == 0 || chance(30)) return std::nullopt;
    PeerPlan plan;
    plan.mine = hello_of(chance(70) ? rank : size_ + 3);
    const int peer = below(rank);
    plan.dials.push_back({peer, {address(peer)}});
    return plan;
  }

  /// One or more times that of `rank`, among some where nobody listens.
  std::vector<Address> addresses_of_one(int rank) {
    std::vector<Address> found;
    do found.push_back(chance(20) ? Address{"127.0.0.1", dead_} : address(rank));
    while (chance(50));
    found.push_back(address(rank));
    return found;
  }

  /// The other rank has connected all that it expects and does not listen any more, or it closes
  /// this connection.
  void try_again(PeerPlan plan) const {
    try {
      connect_peers(std::move(plan), key_, StartDeadline(30s));
    } catch (const Error&) {
    }
  }

  /// Both ranks of each pair have the two ends of one connection.
  std::optional<std::string> difference(const std::vector<Connections>& all) const {
    for (int rank = 0; rank < size_; ++rank) {
      const Connections& mine = all[static_cast<size_t>(rank)];
      if (mine.size() != static_cast<size_t>(size_ - 1))
        return fmt::format("rank {} has {} connections", rank, mine.size());
      for (const auto& [peer, connected] : mine) {
        const char from = static_cast<char>(rank);
        if (::send(connected.socket.get(), &from, 1, MSG_NOSIGNAL) != 1)
          return fmt::format("rank {} cannot send to rank {}", rank, peer);
      }
    }
    for (int rank = 0; rank < size_; ++rank) {
      for (const auto& [peer, connected] : all[static_cast<size_t>(rank)]) {
        char from = -1;
        wait_until_ready(connected.socket.get(), POLLIN, std::chrono::steady_clock::now() + 5s);
        if (::recv(connected.socket.get(), &from, 1, MSG_DONTWAIT) != 1 || from != peer)
          return fmt::format("rank {} and rank {} have different connections", rank, peer);
      }
    }
    return std::nullopt;
  }

  std::mt19937_64 random_;
  const JobKey key_;
  int size_ = 0;
  uint16_t dead_ = 0;  ///< a port on which nobody listens
  std::vector<FileDescriptor> listeners_;
  std::vector<uint16_t> ports_;
  std::vector<FileDescriptor> silent_;
  std::vector<std::unique_ptr<Gate>> begun_;
};

TEST(Connecting, EveryPairOfRanksHasOneConnectionWhateverElseArrives) {
  const std::vector<uint64_t> list = seeds(64);
  for (size_t first = 0; first < list.size(); first += kAtATime) {
    std::vector<std::pair<uint64_t, std::future<std::optional<std::string>>>> runs;
    for (size_t i = first; i < std::min(first + kAtATime, list.size()); ++i)
      runs.emplace_back(list[i], std::async(std::launch::async,
                                            [seed = list[i]] { return Connecting(seed).run(); }));
    for (auto& [seed, run] : runs) {
      const auto failure = run.get();
      EXPECT_FALSE(failure) << replay(seed, "Connecting.*") << "\n" << *failure;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hvd::sim
