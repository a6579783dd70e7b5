#include "core/group/group_contract.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <thread>

namespace hvd {
namespace {

/// The byte that `sender` writes at `offset` of a unit: different for every unit, so that stale
/// data is detected.
std::byte content(Ticket ticket, int sender, size_t offset) {
  const uint64_t mixed =
      (ticket.batch * 1000003 + ticket.unit * 10007 + sender * 101 + offset) * 0x9E3779B97F4A7C15u;
  return static_cast<std::byte>(mixed >> 56);
}

void fill(MutableBytes room, Ticket ticket, int sender) {
  for (size_t i = 0; i < room.size(); ++i) room[i] = content(ticket, sender, i);
}

bool is_content(ConstBytes bytes, Ticket ticket, int sender, size_t offset) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != content(ticket, sender, offset + i)) return false;
  }
  return true;
}

struct Delivery {
  int from = 0;  ///< ranks within the group
  int to = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

/// One batch, as known to all its ranks.
struct Plan {
  uint64_t batch = 0;
  std::vector<int> members;
  std::vector<std::vector<Delivery>> units;
};

/// Runs one batch as one of its ranks: publishes as far ahead as allowed, and checks every view
/// when it appears and again just before it is released.
class Walk {
 public:
  Walk(const Plan& plan, Group& group, uint64_t seed) : plan_(plan), group_(group), random_(seed) {}

  bool done() const { return released_ == plan_.units.size() && published_ == plan_.units.size(); }
  int wrong() const { return wrong_; }

  bool advance() {
    bool moved = group_.pump();
    const bool may_publish =
        published_ < plan_.units.size() && published_ < released_ + group_.units_in_flight();
    if (may_publish) moved |= publish();
    if (released_ < published_) moved |= read();
    return moved;
  }

 private:
  Ticket ticket(size_t unit) const { return {plan_.batch, static_cast<uint32_t>(unit)}; }

  bool publish() {
    std::vector<Parcel> parcels;
    size_t bytes = 0;
    for (const Delivery& d : plan_.units[published_]) {
      if (d.from != group_.rank()) continue;
      parcels.push_back({d.to, d.offset, d.bytes});
      bytes = std::max(bytes, d.offset + d.bytes);
    }
    if (!parcels.empty()) {
      const auto room = group_.reserve(ticket(published_), bytes);
      if (!room) return false;
      EXPECT_EQ(room->size(), bytes);
      fill(*room, ticket(published_), plan_.members[group_.rank()]);
    }
    dawdle();
    group_.publish(ticket(published_++), parcels);
    return true;
  }

  bool read() {
    for (const bool last_look : {false, true}) {
      for (const Delivery& d : plan_.units[released_]) {
        if (d.to != group_.rank()) continue;
        const auto view = group_.view(ticket(released_), {d.from, d.offset, d.bytes});
        if (!view) {
          EXPECT_FALSE(last_look);
          return false;
        }
        wrong_ += view->size() != d.bytes ||
                  !is_content(*view, ticket(released_), plan_.members[d.from], d.offset);
      }
      if (!last_look) dawdle();
    }
    group_.release(ticket(released_++));
    return true;
  }

  void dawdle() {
    switch (random_() % 8) {
      case 0:
        std::this_thread::yield();
        break;
      case 1:
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
        break;
      default:
        break;
    }
  }

  const Plan& plan_;
  Group& group_;
  std::mt19937_64 random_;
  size_t published_ = 0;
  size_t released_ = 0;
  int wrong_ = 0;
};

/// All ranks run `plans`, one thread per rank, skipping plans without them.
void run(GroupWorld& world, int ranks, const std::vector<Plan>& plans, uint64_t seed) {
  std::atomic<int> finished = 0;
  const auto live = [&](int rank) {
    std::map<std::vector<int>, std::unique_ptr<Group>> groups;
    for (const Plan& plan : plans) {
      if (std::find(plan.members.begin(), plan.members.end(), rank) == plan.members.end()) continue;
      auto& group = groups[plan.members];
      if (!group) group = world.group(rank, plan.members);
      Walk walk(plan, *group, seed * 64 + static_cast<uint64_t>(rank));
      while (!walk.done()) {
        if (!walk.advance()) world.rest(rank, [&walk] { return walk.advance(); });
      }
      EXPECT_EQ(walk.wrong(), 0) << "rank " << rank << ", batch " << plan.batch;
    }
    ++finished;
    while (finished < ranks) {
      world.finish(rank);
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(live, rank);
  for (auto& thread : threads) thread.join();
}

std::vector<int> everybody(int ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

/// Each rank sends `bytes` to all ranks, itself included, in every unit.
Plan all_to_all(uint64_t batch, std::vector<int> members, size_t units, size_t bytes) {
  std::vector<Delivery> deliveries;
  const int size = static_cast<int>(members.size());
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) deliveries.push_back({from, to, 0, bytes});
  }
  return {batch, std::move(members), std::vector(units, deliveries)};
}

Plan random_plan(uint64_t batch, int ranks, size_t unit_bytes, std::mt19937_64& random) {
  Plan plan{batch, everybody(ranks), {}};
  std::shuffle(plan.members.begin(), plan.members.end(), random);
  plan.members.resize(1 + random() % static_cast<size_t>(ranks));
  const size_t size = plan.members.size();
  plan.units.resize(1 + random() % 9);
  for (auto& unit : plan.units) {
    for (size_t i = random() % (2 * size + 1); i > 0; --i) {
      const size_t offset = random() % 4 == 0 ? random() % unit_bytes : 0;
      const size_t most =
          random() % 20 == 0 ? unit_bytes - offset : std::min<size_t>(unit_bytes - offset, 300);
      unit.push_back({static_cast<int>(random() % size), static_cast<int>(random() % size), offset,
                      random() % (most + 1)});
    }
  }
  return plan;
}

TEST_P(GroupContract, TellsRankSizeAndRoom) {
  const auto world = GetParam().make(3);
  const auto group = world->group(2, {1, 2});
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 2);
  EXPECT_GE(group->units_in_flight(), 2u);
  EXPECT_GE(group->unit_bytes(), 4096u);
}

TEST_P(GroupContract, NothingIsSeenBeforeItIsPublished) {
  const auto world = GetParam().make(2);
  const auto first = world->group(0, {0, 1});
  const auto second = world->group(1, {0, 1});
  const Ticket ticket{7, 0};
  const Parcel there{1, 8, 16}, from{0, 8, 16};
  const auto room = first->reserve(ticket, 100);
  ASSERT_TRUE(room);
  fill(*room, ticket, 0);
  second->pump();
  EXPECT_FALSE(second->view(ticket, from));
  first->publish(ticket, std::vector{there, Parcel{0, 8, 16}});
  while (first->pump() || second->pump()) continue;
  const auto view = second->view(ticket, from);
  ASSERT_TRUE(view);
  EXPECT_TRUE(is_content(*view, ticket, 0, 8));
  const auto own = first->view(ticket, from);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->data(), room->data() + 8);  // the view of a rank's own unit is its buffer
  EXPECT_FALSE(second->view({7, 1}, from));
}

TEST_P(GroupContract, EverybodySeesEverybodyInSmallAndInWholeUnits) {
  for (const int ranks : {1, 2, 4}) {
    const auto world = GetParam().make(ranks);
    const size_t whole = world->group(0, {0})->unit_bytes();
    std::vector<Plan> plans;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}}) {
      plans.push_back(all_to_all(plans.size(), everybody(ranks), 6, bytes));
    }
    plans.push_back(all_to_all(plans.size(), everybody(ranks), 2, whole));
    run(*world, ranks, plans, 1);
  }
}

TEST_P(GroupContract, ManyUnitsPassInOrder) {
  const auto world = GetParam().make(2);
  run(*world, 2, {all_to_all(3, {0, 1}, 3000, 24), all_to_all(9, {1, 0}, 3000, 24)}, 2);
}

TEST_P(GroupContract, ManyBatchesOfOneUnitPassInOrder) {
  const auto world = GetParam().make(3);
  std::vector<Plan> plans;
  for (uint64_t batch = 0; batch < 600; ++batch) {
    plans.push_back(all_to_all(batch, everybody(3), 1, 64));
  }
  run(*world, 3, plans, 3);
}

TEST_P(GroupContract, ARankThatOnlySendsDoesNotOverrunItsReaders) {
  const auto world = GetParam().make(3);
  std::vector<Plan> plans;
  for (uint64_t batch = 0; batch < 20; ++batch) {
    plans.push_back({batch, {0, 1, 2}, {}});
    plans.back().units.resize(20, {{0, 1, 0, 3000}, {0, 2, 500, 3000}});
  }
  run(*world, 3, plans, 4);
}

TEST_P(GroupContract, GroupsThatOverlapFollowOneOrder) {
  const auto world = GetParam().make(3);
  std::vector<Plan> plans;
  for (uint64_t batch = 0; batch < 300; ++batch) {
    const std::vector<std::vector<int>> pairs{{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
    plans.push_back(all_to_all(batch, pairs[batch % 4], batch % 3 + 1, 200));
  }
  run(*world, 3, plans, 5);
}

TEST_P(GroupContract, RandomTrafficOfRandomGroupsArrivesWhole) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 4);
    const auto world = GetParam().make(ranks);
    const size_t unit_bytes = std::min<size_t>(world->group(0, {0})->unit_bytes(), 16 * KiB);
    std::vector<Plan> plans;
    for (uint64_t batch = random() % 5; plans.size() < 40; batch += 1 + random() % 6) {
      plans.push_back(random_plan(batch, ranks, unit_bytes, random));
    }
    run(*world, ranks, plans, seed);
  }
}

}  // namespace
}  // namespace hvd
