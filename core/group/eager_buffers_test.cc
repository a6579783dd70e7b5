// Ranks are threads, or one thread that alternates between them, on one mapping.
#include "core/group/eager_buffers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/group/host_segment.h"
#include "core/group/segment_memory.h"
#include "core/transport/epoll_waiter.h"

namespace hvd {
namespace {

class Host {
 public:
  explicit Host(int ranks)
      : layout_(SegmentLayout::of(ranks, 64 * KiB, 4096).with_eager_buffers()),
        memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < ranks; ++rank)
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
  }
  HostSegment& segment(int rank) { return *segments_[rank]; }
  EagerBuffers& slots(int rank) { return *segment(rank).eager_buffers(); }

 private:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
};

bool post_byte(EagerBuffers& slots, int value, size_t bytes) {
  std::byte* room = slots.reserve(bytes);
  if (room == nullptr) return false;
  std::memset(room, value, bytes);
  slots.post(bytes);
  return true;
}

/// Runs `work(rank)` for all ranks in parallel.
template <class Work>
void on_threads(int ranks, const Work& work) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
}

/// Returns how many of the first `bytes` have the value before the first that differs.
size_t count_right(const std::byte* seen, size_t bytes, int value) {
  const auto is_wrong = [&](std::byte each) { return each != static_cast<std::byte>(value); };
  return static_cast<size_t>(std::find_if(seen, seen + bytes, is_wrong) - seen);
}

TEST(EagerBuffers, AreThereOnlyWhereTheLayoutHasThem) {
  const auto layout = SegmentLayout::of(2, 64 * KiB, 4096);
  SegmentMemory memory(layout.total_bytes());
  EXPECT_EQ(HostSegment(memory.bytes(), layout, 1, 0).eager_buffers(), nullptr);
}

TEST(EagerBuffers, ShrinkWithTheNumberOfRanks) {
  for (const int ranks : {1, 2, 8, 64}) {
    const auto layout = SegmentLayout::of(ranks, 4096, 4096).with_eager_buffers();
    EXPECT_LE(layout.eager_bytes * static_cast<size_t>(ranks), SegmentLayout::kEagerBytesOfAll);
    EXPECT_LE(layout.eager_bytes, EagerBuffers::kMostBytes);
    EXPECT_EQ(layout.eager_bytes % kCacheLine, 0u);
    EXPECT_GE(layout.eager_ring_bytes, EagerBuffers::least_ring_bytes(layout.eager_bytes));
    EXPECT_EQ(layout.eager_ring_bytes % kCacheLine, 0u);
    EXPECT_LE(layout.eager_ring_bytes * static_cast<size_t>(ranks),
              SegmentLayout::kEagerRingBytesOfAll);
    EXPECT_GT(layout.eager_bytes, 0u);
    for (const int rank : {0, ranks - 1}) EXPECT_EQ(layout.eager_offset(rank) % kCacheLine, 0u);
    EXPECT_LE(layout.eager_offset(ranks), layout.staging_offset(0));
  }
}

TEST(EagerBuffers, AreNotMadeForMoreRanksThanUseThem) {
  const auto layout = SegmentLayout::of(EagerBuffers::kMostRanks + 1, 4096, 4096);
  EXPECT_EQ(layout.with_eager_buffers(), layout);
}

TEST(EagerBuffers, ShowNothingBeforeItIsPosted) {
  Host host(2);
  EXPECT_EQ(host.slots(0).view(1, 8, 8), nullptr);
  ASSERT_TRUE(post_byte(host.slots(1), 7, 8));
  const std::byte* seen = host.slots(0).view(1, 8, 8);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen[7], std::byte{7});
}

TEST(EagerBuffers, LetARankThatOnlyPostsRunAheadAsFarAsThereAreSlots) {
  Host host(2);
  for (uint64_t ahead = 0; ahead < EagerBuffers::kSlots; ++ahead) {
    ASSERT_TRUE(post_byte(host.slots(0), static_cast<int>(ahead), 100));
    host.slots(0).finish();
  }
  EXPECT_FALSE(post_byte(host.slots(0), 99, 100));  // the peer has not read the first yet
  for (int exchange = 0; exchange < 2; ++exchange) {
    ASSERT_TRUE(post_byte(host.slots(1), 0, 0));
    const std::byte* seen = host.slots(1).view(0, 100, 100);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(seen[99], static_cast<std::byte>(exchange));
    host.slots(1).finish();
  }
  EXPECT_TRUE(post_byte(host.slots(0), 99, 100));
}

TEST(EagerBuffers, LetSuchARankRunAheadRoundItsRing) {
  Host host(2);
  const size_t most = host.slots(0).most_bytes();
  const auto size_of = [&](int exchange) { return most - static_cast<size_t>(exchange % 3) * 100; };
  const auto send = [&](int exchange) {
    ASSERT_TRUE(post_byte(host.slots(0), exchange, size_of(exchange)));
    host.slots(0).finish();
  };
  send(0);
  for (int exchange = 0; exchange < 20; ++exchange) {
    ASSERT_TRUE(post_byte(host.slots(1), 0, 0));
    send(exchange + 1);  // before the peer has read this one
    const size_t bytes = size_of(exchange);
    const std::byte* seen = host.slots(1).view(0, bytes, bytes);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(count_right(seen, bytes, exchange), bytes) << exchange;
    host.slots(1).finish();
  }
}

TEST(EagerBuffers, ARankThatGivesUpSeesWhoWritesAndNobodyBeginsAfterwards) {
  Host host(3);
  ASSERT_TRUE(host.slots(0).begin_writing());
  host.slots(1).give_up(1);
  EXPECT_TRUE(host.slots(1).is_writing(0));
  EXPECT_FALSE(host.slots(1).is_writing(2));
  host.slots(0).end_writing();
  EXPECT_FALSE(host.slots(1).is_writing(0));
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(host.slots(rank).begin_writing());
    EXPECT_FALSE(host.slots(1).is_writing(rank));
    EXPECT_EQ(host.slots(rank).who_has_given_up(), 1);
  }
  host.slots(0).give_up(1);
  EXPECT_EQ(host.slots(2).who_has_given_up(), 1);
}

TEST(EagerBuffers, TellWhoWasTheFirstToGiveUpAndStayWithIt) {
  Host host(4);
  host.slots(2).give_up(2);
  host.slots(0).give_up(0);  // has not published the cause and is checked first
  EXPECT_EQ(host.slots(1).who_has_given_up(), 2);
  host.slots(1).give_up(3);
  EXPECT_EQ(host.slots(3).who_has_given_up(), 2);

  Host others(2);
  others.slots(0).give_up(1);  // as if its process has ended
  others.slots(0).give_up(0);
  EXPECT_EQ(others.slots(1).who_has_given_up(), 1);
}

TEST(EagerBuffers, GoOnWhenTheNumbersOfExchangesBeginAnew) {
  constexpr uint64_t kLast = (uint64_t{1} << 40) - 1;
  for (const uint64_t exchange : {uint64_t{1}, uint64_t{1} << 39, kLast, kLast + 1}) {
    const uint64_t wanted = EagerBuffers::word_of(exchange, 100);
    const auto reaches = [=](uint64_t other, size_t bytes) {
      return EagerBuffers::reaches(EagerBuffers::word_of(other, bytes), wanted);
    };
    EXPECT_TRUE(reaches(exchange, 100)) << exchange;
    EXPECT_FALSE(reaches(exchange, 99)) << exchange;
    EXPECT_TRUE(reaches(exchange + 1, 0)) << exchange;
    EXPECT_TRUE(reaches(exchange + EagerBuffers::kSlots, 0)) << exchange;
    EXPECT_FALSE(reaches(exchange - 1, EagerBuffers::kMostBytes)) << exchange;
    EXPECT_FALSE(reaches(exchange - std::min(exchange, EagerBuffers::kSlots), 100)) << exchange;
  }
}

TEST(EagerBuffers, CarryMessagesOfAllSizesBetweenRanksAtTheirOwnPace) {
  constexpr int kRanks = 3;
  Host host(kRanks);
  const auto work = [&](int rank) {
    EagerBuffers& slots = host.slots(rank);
    for (int exchange = 0; exchange < 3000; ++exchange) {
      const size_t bytes = static_cast<size_t>(exchange * 37) % 300;
      while (!post_byte(slots, exchange + rank, bytes)) std::this_thread::yield();
      for (int peer = 0; peer < kRanks; ++peer) {
        const std::byte* seen = nullptr;
        while ((seen = slots.view(peer, bytes, bytes)) == nullptr) std::this_thread::yield();
        for (size_t i = 0; i < bytes; ++i)
          ASSERT_EQ(seen[i], static_cast<std::byte>(exchange + peer)) << exchange;
      }
      slots.finish();
    }
  };
  on_threads(kRanks, work);
}

TEST(EagerBuffers, GiveEachShareOfTheWorkToOneRank) {
  Host host(3);
  const auto claim = [&](int rank) { return host.slots(rank).claim(4); };
  for (int exchange = 0; exchange < 12; ++exchange) {
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(post_byte(host.slots(rank), rank, 100));
    if (exchange % 3 != 1) {  // exchanges with and without shared work use both slots
      for (const int share : {0, 1, 2, 3}) EXPECT_EQ(claim(share % 3), share);
      EXPECT_EQ(claim(1), std::nullopt);
      for (const int share : {0, 1, 2, 3}) {
        EXPECT_FALSE(host.slots(2).all_are_made(4)) << share;
        host.slots(share % 3).tell_made(4);
      }
      for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(host.slots(rank).all_are_made(4));
    }
    for (int rank = 0; rank < 3; ++rank) host.slots(rank).finish();
  }
}

TEST(EagerBuffers, ShowWhatAnyRankHasMadeOfTheFirstOnesMessage) {
  constexpr int kRanks = 4, kShares = 3;
  Host host(kRanks);
  const auto work = [&](int rank) {
    EagerBuffers& slots = host.slots(rank);
    for (int exchange = 0; exchange < 2000; ++exchange) {
      // The result is beside a flag or in a ring.
      const size_t share_bytes = exchange % 5 == 0 ? 3000 : 50, bytes = kShares * share_bytes;
      while (!post_byte(slots, exchange, bytes)) std::this_thread::yield();
      for (int peer = 0; peer < kRanks; ++peer)
        while (slots.view(peer, bytes, bytes) == nullptr) std::this_thread::yield();
      while (const auto share = slots.claim(kShares)) {
        const auto begin = static_cast<size_t>(*share) * share_bytes;
        std::memset(slots.result(bytes) + begin, exchange + 1 + *share, share_bytes);
        slots.tell_made(kShares);
      }
      while (!slots.all_are_made(kShares)) std::this_thread::yield();
      for (int share = 0; share < kShares; ++share) {
        const std::byte* const made =
            slots.result(bytes) + static_cast<size_t>(share) * share_bytes;
        ASSERT_EQ(count_right(made, share_bytes, exchange + 1 + share), share_bytes) << exchange;
      }
      slots.finish();
    }
  };
  on_threads(kRanks, work);
}

TEST(EagerBuffers, WakeWhoSleepsWhenAllSharesAreMade) {
  Host host(2);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(post_byte(host.slots(rank), 0, 100));
  ASSERT_EQ(host.slots(0).claim(2), 0);
  ASSERT_EQ(host.slots(0).claim(2), 1);
  const EpollWaiter sleeper;
  host.segment(0).set_doorbell(1, FileDescriptor(::dup(sleeper.doorbell_fd())));
  host.segment(1).set_asleep(true);
  host.slots(0).tell_made(2);
  EXPECT_TRUE(host.segment(1).is_asleep());
  host.slots(0).tell_made(2);
  EXPECT_FALSE(host.segment(1).is_asleep());
}

TEST(EagerBuffers, TakeSharesOfEarlierExchangesForNone) {
  constexpr uint64_t kLast = (uint64_t{1} << 40) - 1;
  for (const uint64_t exchange : {uint64_t{4}, uint64_t{1} << 39, kLast, kLast + 3}) {
    const auto shares_in = [=](uint64_t other) {
      return EagerBuffers::shares_in(EagerBuffers::word_of(other, 7), exchange);
    };
    EXPECT_EQ(shares_in(exchange), 7) << exchange;
    for (const uint64_t ago : {uint64_t{1}, EagerBuffers::kSlots, uint64_t{1} << 38, kLast})
      EXPECT_EQ(shares_in(exchange - ago), 0) << exchange << " " << ago;
  }
}

TEST(EagerBuffers, CarryLargeMessagesRoundTheirRing) {
  constexpr int kRanks = 3;
  Host host(kRanks);
  const size_t most = host.slots(0).most_bytes();
  const auto work = [&](int rank) {
    EagerBuffers& slots = host.slots(rank);
    for (int exchange = 0; exchange < 100; ++exchange) {
      // Some messages end at the end of the ring, some wrap, some do not use the ring.
      const size_t bytes = exchange % 5 == 0   ? most
                           : exchange % 7 == 0 ? 10
                                               : exchange * 2879 % most;
      while (!post_byte(slots, exchange + rank, bytes)) std::this_thread::yield();
      for (int peer = 0; peer < kRanks; ++peer) {
        const std::byte* seen = nullptr;
        while ((seen = slots.view(peer, bytes, bytes)) == nullptr) std::this_thread::yield();
        ASSERT_EQ(count_right(seen, bytes, exchange + peer), bytes) << exchange;
      }
      slots.finish();
    }
  };
  on_threads(kRanks, work);
}

}  // namespace
}  // namespace hvd
