// The memory of the state machines does not grow with the number of operations.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "core/negotiate/client.h"
#include "core/negotiate/hub.h"
#include "core/negotiate/testing.h"

namespace hvd {
namespace {

constexpr int kNamesInRound = 3;

/// Two hosts with two ranks each that submit the same operations in each round and complete them.
class Job {
 public:
  explicit Job(uint32_t capacity) {
    const NegotiateOptions options{.slot_capacity = capacity};
    for (int rank = 0; rank < topology_.ranks(); ++rank) {
      clients_.emplace_back(rank, topology_, options);
    }
    for (int host = 0; host < topology_.hosts(); ++host)
      hubs_.emplace_back(host, topology_, options);
  }

  void run(const std::vector<std::string>& names) {
    for (Client& client : clients_) {
      for (const std::string& name : names) {
        ASSERT_EQ(client.submit(kWorldGroup, name, allreduce_of(name), 0), Submitted::accepted);
      }
    }
    while (pass_messages()) continue;
    for (const Client& client : clients_) ASSERT_EQ(client.waiting(), 0u);
  }

  /// The number of entries of the largest table of slots or names, without just retired slots.
  size_t most_remembered() {
    size_t most = hubs_.front().root()->remembered();
    for (const Client& client : clients_) {
      most = std::max(most, client.slots(kWorldGroup)->live_count());
    }
    for (const Hub& hub : hubs_) most = std::max(most, hub.live_slots());
    return most;
  }

  size_t most_in_flight() const {
    size_t most = 0;
    for (const Hub& hub : hubs_) most = std::max({most, hub.counting(), hub.kept_slots()});
    return most;
  }

 private:
  bool pass_messages() {
    bool moved = false;
    for (int rank = 0; rank < topology_.ranks(); ++rank) moved |= run_client(rank);
    for (int host = topology_.hosts() - 1; host >= 0; --host) moved |= run_hub(host);
    return moved;
  }

  bool run_client(int rank) {
    Client& client = clients_[rank];
    for (const Action& action : client.take_actions()) {
      client.batch_done(action.group, action.bound);
      if (rank == 0) hubs_[0].root_rank_done(action.group);
    }
    if (!client.has_up()) return false;
    const int host = topology_.host_of[rank];
    hubs_[host].from_child(topology_.child_towards(host, rank), client.take_up());
    return true;
  }

  bool run_hub(int host) {
    Hub& hub = hubs_[host];
    hub.turn();
    const bool has_up = hub.has_up();
    if (has_up) {
      hubs_[0].from_child(topology_.child_towards(0, topology_.leader(host)), hub.take_up());
    }
    const auto down = hub.take_down();
    for (const auto& [child, verdicts] : down) {
      for (const Verdict& verdict : verdicts) deliver(host, child, verdict);
    }
    return has_up || !down.empty();
  }

  void deliver(int host, int child, const Verdict& verdict) {
    const int ranks_here = static_cast<int>(topology_.host_ranks[host].size());
    if (child >= ranks_here) return hubs_[1].from_parent(verdict);
    clients_[topology_.host_ranks[host][child]].from_parent(verdict);
  }

  Topology topology_ = Topology::of({2, 2});
  std::deque<Client> clients_;
  std::deque<Hub> hubs_;
};

class Memory : public testing::TestWithParam<uint32_t> {};

TEST_P(Memory, IsNotTakenByNamesThatNeverComeBack) {
  Job job(GetParam());
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> names;
    for (int i = 0; i < kNamesInRound; ++i) {
      names.push_back(fmt::format("noname.{}", round * kNamesInRound + i));
    }
    job.run(names);
  }
  EXPECT_LE(job.most_remembered(), GetParam());
  EXPECT_EQ(job.most_in_flight(), 0u);
}

// Each gets a slot, and another slot is retired for it.
TEST_P(Memory, IsBoundedByTheCapacityWhereNamesComeBackForAWhile) {
  Job job(GetParam());
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> names;
    for (int i = 0; i < kNamesInRound; ++i) names.push_back(fmt::format("w{}", round + i));
    job.run(names);
  }
  EXPECT_LE(job.most_remembered(), GetParam());
  // The retirements of the last round, which the children have not acknowledged yet.
  EXPECT_LE(job.most_in_flight(), static_cast<size_t>(kNamesInRound));
}

INSTANTIATE_TEST_SUITE_P(OfSlots, Memory, testing::Values(0u, 1u, 2u, 5u, 64u),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace hvd
