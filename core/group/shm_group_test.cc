#include "core/group/shm_group.h"

#include <sys/eventfd.h>

#include <thread>

#include "core/group/group_contract.h"
#include "core/group/host_segment.h"
#include "core/group/segment_memory.h"
#include "core/transport/epoll_waiter.h"

namespace hvd {
namespace {

/// Ranks are threads on one mapping.
class ShmWorld : public GroupWorld {
 public:
  explicit ShmWorld(int ranks, size_t staging_bytes)
      : layout_(SegmentLayout::of(ranks, staging_bytes, 4096)), memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < ranks; ++rank) {
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
    }
  }

  HostSegment& segment(int rank) { return *segments_[rank]; }

  std::unique_ptr<Group> group(int rank, std::vector<int> members) override {
    return std::make_unique<ShmGroup>(segments_[rank]->staging(), std::move(members));
  }
  void rest(int, const std::function<bool()>&) override { std::this_thread::yield(); }
  void finish(int) override {}

 protected:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
};

/// As above, but an idle rank sleeps at once without a timeout, so that a lost wake-up hangs the
/// test.
class SleepyWorld final : public ShmWorld {
 public:
  SleepyWorld(int ranks, size_t staging_bytes) : ShmWorld(ranks, staging_bytes), waiters_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int peer = 0; peer < ranks; ++peer) {
        segment(rank).set_doorbell(peer, FileDescriptor(::dup(waiters_[peer].doorbell_fd())));
      }
    }
  }

  void rest(int rank, const std::function<bool()>& look_again) override {
    segment(rank).set_asleep(true);
    if (!look_again()) {
      std::vector<uint64_t> ready;
      waiters_[rank].wait(std::nullopt, ready);
    }
    segment(rank).set_asleep(false);
  }

 private:
  std::vector<EpollWaiter> waiters_;
};

INSTANTIATE_TEST_SUITE_P(
    SharedMemory, GroupContract,
    testing::Values(
        GroupKind{"shm", [](int ranks) { return std::make_unique<ShmWorld>(ranks, 16 * MiB); }},
        GroupKind{"shm_small",
                  [](int ranks) { return std::make_unique<ShmWorld>(ranks, 16 * KiB); }},
        GroupKind{"shm_asleep",
                  [](int ranks) { return std::make_unique<SleepyWorld>(ranks, 16 * KiB); }}),
    name_of_group_kind);

TEST(ShmGroup, HasTwiceAsManySlotsAsUnitsInFlight) {
  ShmWorld world(2, 16 * KiB);
  EXPECT_EQ(world.group(0, {0, 1})->units_in_flight(), SegmentLayout::kSlots / 2);
}

TEST(ShmGroup, ABatchOfTwoUnitsDoesNotGoWhereTheLastOneWas) {
  ShmWorld world(2, 16 * KiB);
  const auto group = world.group(0, {0, 1});
  std::vector<const std::byte*> rooms;
  for (uint64_t batch = 0; batch < 4; ++batch)
    for (uint32_t unit = 0; unit < 2; ++unit) {
      rooms.push_back(group->reserve({batch, unit}, 100)->data());
      group->publish({batch, unit}, {});
      group->release({batch, unit});
      for (size_t back = 2; back <= 4 && back <= rooms.size(); ++back)
        EXPECT_NE(rooms.back(), rooms[rooms.size() - back]) << batch << '.' << unit;
    }
}

constexpr size_t kRoom = 100;

void publish_to(Group& group, Ticket ticket, std::vector<int> peers) {
  ASSERT_TRUE(group.reserve(ticket, kRoom));
  std::vector<Parcel> parcels;
  for (const int peer : peers) parcels.push_back({peer, 0, kRoom});
  group.publish(ticket, parcels);
}

TEST(ShmGroup, RoomIsRefusedWhileAPeerMayStillReadIt) {
  ShmWorld world(2, 16 * KiB);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  const uint32_t slots = SegmentLayout::kSlots;
  for (uint32_t unit = 0; unit < slots; ++unit) {
    publish_to(*first, {1, unit}, {1});
    first->release({1, unit});
    second->publish({1, unit}, {});
  }
  EXPECT_FALSE(first->reserve({1, slots}, kRoom));
  EXPECT_TRUE(second->view({1, 0}, {0, 0, kRoom}));
  second->release({1, 0});
  EXPECT_TRUE(first->reserve({1, slots}, kRoom));
  EXPECT_TRUE(second->view({1, 1}, {0, 0, kRoom}));
}

TEST(ShmGroup, RoomIsRefusedWhileThisRankItselfHasNotReleasedIt) {
  ShmWorld world(2, 16 * KiB);
  const auto group = world.group(0, {0, 1});
  const uint32_t slots = SegmentLayout::kSlots;
  for (uint32_t unit = 0; unit < slots; ++unit) publish_to(*group, {1, unit}, {0});
  EXPECT_FALSE(group->reserve({1, slots}, kRoom));
  group->release({1, 0});
  EXPECT_TRUE(group->reserve({1, slots}, kRoom));
}

TEST(ShmGroup, RoomThatAnotherGroupReadsIsRefused) {
  ShmWorld world(3, 16 * KiB);
  const auto with_one = world.group(0, {0, 1});
  const auto with_two = world.group(0, {0, 2});
  const auto one = world.group(1, {0, 1});
  const uint64_t later = 1 + SegmentLayout::kSlots;  // uses the same slot as batch 1
  publish_to(*with_one, {1, 0}, {1});
  with_one->release({1, 0});
  EXPECT_TRUE(with_two->reserve({2, 0}, kRoom));  // another slot
  with_two->publish({2, 0}, {});
  with_two->release({2, 0});
  EXPECT_FALSE(with_two->reserve({later, 0}, kRoom));
  one->publish({1, 0}, {});
  one->release({1, 0});
  EXPECT_TRUE(with_two->reserve({later, 0}, kRoom));
}

TEST(ShmGroup, RoomThatNobodyWasToldOfIsFreeAtOnce) {
  ShmWorld world(2, 16 * KiB);
  const auto group = world.group(0, {0, 1});
  for (uint64_t batch = 0; batch < 20; ++batch) {
    EXPECT_TRUE(group->reserve({batch, 0}, kRoom));
    group->publish({batch, 0}, {});
    group->release({batch, 0});
  }
}

TEST(ShmGroup, WakesOnlyThoseThatItConcerns) {
  SleepyWorld world(3, 16 * KiB);
  const auto group = world.group(0, {0, 1, 2});
  const auto asleep = [&world](int rank) {
    // The flag is cleared by the rank that wakes this one.
    return world.segment(rank).is_asleep();
  };
  world.segment(1).set_asleep(true);
  world.segment(2).set_asleep(true);
  publish_to(*group, {1, 0}, {2});
  EXPECT_TRUE(asleep(1));
  EXPECT_FALSE(asleep(2));
  world.segment(2).set_asleep(true);
  group->release({1, 0});  // no rank waits for it
  EXPECT_TRUE(asleep(1));
  EXPECT_TRUE(asleep(2));
}

TEST(ShmGroup, AReleaseWakesTheRankThatNeedsTheRoom) {
  SleepyWorld world(3, 16 * KiB);
  const auto sender = world.group(0, {0, 1, 2});
  const auto one = world.group(1, {0, 1, 2});
  const auto two = world.group(2, {0, 1, 2});
  const uint32_t slots = SegmentLayout::kSlots;
  for (uint32_t unit = 0; unit < slots; ++unit) {
    publish_to(*sender, {1, unit}, {2});
    sender->release({1, unit});
  }
  ASSERT_FALSE(sender->reserve({1, slots}, kRoom));
  world.segment(0).set_asleep(true);
  one->release({1, 0});
  EXPECT_TRUE(world.segment(0).is_asleep());
  two->release({1, 0});
  EXPECT_FALSE(world.segment(0).is_asleep());
  EXPECT_TRUE(sender->reserve({1, slots}, kRoom));
}

TEST(Staging, TicketsBecomeGrowingNumbers) {
  const std::vector<Ticket> tickets{{0, 0}, {0, 1}, {0, kMaxUnit},
                                    {1, 0}, {2, 5}, {kMaxBatch, kMaxUnit}};
  uint64_t before = 0;
  for (const Ticket ticket : tickets) {
    EXPECT_GT(key_of(ticket), before);
    before = key_of(ticket);
  }
  EXPECT_DEATH(key_of({0, kMaxUnit + 1}), "ticket.unit");
  EXPECT_DEATH(key_of({kMaxBatch + 1, 0}), "ticket.batch");
}

}  // namespace
}  // namespace hvd
