#include "core/group/host_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/syscall_testing.h"
#include "core/group/segment_memory.h"
#include "core/group/shm_group.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/ring.h"

namespace hvd {
namespace {

FileDescriptor copy_of(int fd, AtFork at_fork = AtFork::close) {
  return FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0), at_fork);
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
    return error.what();
  }
  return "it was taken";
}

SegmentLayout small_layout(int local_ranks) {
  return SegmentLayout::of(local_ranks, 64 * KiB, 4096);
}

TEST(SegmentLayout, NothingOverlapsAndEverythingIsAligned) {
  for (const int ranks : {1, 2, 3, 64}) {
    const auto layout = SegmentLayout::of(ranks, 100'000, 5000);
    EXPECT_GE(layout.ring_bytes, 5000u);
    EXPECT_LE(layout.staging_bytes(), 100'000u);
    size_t end = 0;
    const auto follows = [&end](size_t offset, size_t bytes, size_t alignment) {
      EXPECT_GE(offset, end);
      EXPECT_EQ(offset % alignment, 0u);
      end = offset + bytes;
    };
    for (int r = 0; r < ranks; ++r) follows(layout.state_offset(r), sizeof(RankState), 64);
    for (int r = 0; r < ranks; ++r) {
      follows(layout.ring_to_leader_offset(r), ring_memory_bytes(layout.ring_bytes), 64);
      follows(layout.ring_from_leader_offset(r), ring_memory_bytes(layout.ring_bytes), 64);
    }
    for (int r = 0; r < ranks; ++r) follows(layout.staging_offset(r), layout.staging_bytes(), 4096);
    EXPECT_EQ(layout.total_bytes(), end);
  }
}

TEST(SegmentLayout, HasAnEighthOfTheStagingAUnitAndAPageAtLeast) {
  for (const size_t bytes : {64 * KiB, 1 * MiB, 64 * MiB}) {
    EXPECT_EQ(SegmentLayout::of(8, bytes, 4096).staging_bytes(), bytes);
    EXPECT_EQ(SegmentLayout::of(8, bytes, 4096).unit_bytes, bytes / 8);
  }
  EXPECT_EQ(SegmentLayout::of(8, 1, 4096).unit_bytes, 4096u);
}

TEST(HostSegment, IsOpenedByTheRanksOfItsOwnGenerationOnly) {
  const auto layout = small_layout(2);
  const auto leader = HostSegment::create(layout, 5);
  EXPECT_EQ(HostSegment::open(copy_of(leader->fd()), layout, 5, 1)->local_rank(), 1);
  const auto open = [&](const SegmentLayout& expected, uint32_t generation) {
    return refusal([&] { HostSegment::open(copy_of(leader->fd()), expected, generation, 1); });
  };
  EXPECT_THAT(open(layout, 6), ::testing::HasSubstr("generation 5, expected 6"));
  EXPECT_THAT(open(small_layout(3), 5), ::testing::HasSubstr("bytes, expected"));
  SegmentLayout other = layout;  // same size, different layout
  other.slots *= 2;
  other.unit_bytes /= 2;
  EXPECT_THAT(open(other, 5), ::testing::HasSubstr("other settings"));
}

TEST(HostSegment, RefusesAFileThatIsNotASegment) {
  const auto layout = small_layout(2);
  FileDescriptor file(::memfd_create("not-a-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(layout.total_bytes())), 0);
  const auto open = [&] {
    return refusal([&] { HostSegment::open(copy_of(file.get()), layout, 1, 1); });
  };
  EXPECT_THAT(open(), ::testing::HasSubstr("not sealed"));
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(open(), ::testing::HasSubstr("not a segment"));
}

TEST(HostSegment, SaysWhenThereIsNotEnoughMemory) {
  SegmentLayout layout = small_layout(2);
  layout.unit_bytes = (size_t{1} << 62) / layout.slots;  // the total exceeds the maximum file size
  const std::string text = refusal([&] { HostSegment::create(layout, 1); });
  EXPECT_THAT(text, ::testing::HasSubstr("allocating"));
}

TEST(HostSegment, ControlLinksCarryBytesBothWaysAndWakeWhoSleeps) {
  const auto layout = small_layout(3);
  SegmentMemory memory(layout.total_bytes());
  HostSegment leader(memory.bytes(), layout, 1, 0);
  HostSegment rank(memory.bytes(), layout, 1, 2);
  EpollWaiter leaders_waiter, ranks_waiter;
  for (HostSegment* segment : {&leader, &rank}) {
    segment->set_doorbell(0, copy_of(leaders_waiter.doorbell_fd()));
    segment->set_doorbell(2, copy_of(ranks_waiter.doorbell_fd()));
  }
  const auto down = leader.control_link(2, 12);
  const auto up = rank.control_link(0, 10);
  constexpr size_t kBytes = 300'000;  // wraps around the rings many times

  // Each side sleeps without a timeout whenever it can neither send nor receive.
  const auto talk = [](HostSegment& segment, Link& link, Waiter& waiter, int first) {
    size_t sent = 0, received = 0, wrong = 0;
    std::byte piece[1000];
    const auto step = [&] {
      for (size_t i = 0; i < sizeof piece; ++i) piece[i] = static_cast<std::byte>(first + sent + i);
      const size_t out =
          link.send_some(ConstBytes(piece).first(std::min(sizeof piece, kBytes - sent)));
      sent += out;
      const size_t in = link.receive_some(piece);
      for (size_t i = 0; i < in; ++i) {
        wrong += piece[i] != static_cast<std::byte>(1 - first + received + i);
      }
      received += in;
      return out + in > 0;
    };
    while (sent < kBytes || received < kBytes) {
      if (step()) continue;
      segment.set_asleep(true);
      if (!step()) {
        std::vector<uint64_t> ready;
        waiter.wait(std::nullopt, ready);
      }
      segment.set_asleep(false);
    }
    EXPECT_EQ(wrong, 0u);
  };
  std::thread other([&] { talk(rank, *up, ranks_waiter, 1); });
  talk(leader, *down, leaders_waiter, 0);
  other.join();
}

TEST(HostSegment, ALinkThatIsClosedNamesTheGlobalRank) {
  const auto layout = small_layout(2);
  SegmentMemory memory(layout.total_bytes());
  HostSegment leader(memory.bytes(), layout, 1, 0);
  HostSegment rank(memory.bytes(), layout, 1, 1);
  const auto down = leader.control_link(1, 17);
  rank.control_link(0, 16).reset();
  std::byte room[8];
  try {
    down->receive_some(room);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 17);
  }
}

TEST(HostSegment, AGoodbyeIsSeenByTheOthers) {
  const auto layout = small_layout(2);
  SegmentMemory memory(layout.total_bytes());
  HostSegment leader(memory.bytes(), layout, 1, 0);
  HostSegment rank(memory.bytes(), layout, 1, 1);
  EXPECT_FALSE(leader.said_goodbye(1));
  rank.say_goodbye();
  EXPECT_TRUE(leader.said_goodbye(1));
  EXPECT_FALSE(rank.said_goodbye(0));
}

TEST(HostSegment, TheFirstLossThatIsReportedCounts) {
  const auto layout = small_layout(3);
  SegmentMemory memory(layout.total_bytes());
  HostSegment leader(memory.bytes(), layout, 1, 0);
  HostSegment first(memory.bytes(), layout, 1, 1);
  HostSegment second(memory.bytes(), layout, 1, 2);
  EXPECT_EQ(leader.reported_loss(), kNoRank);
  first.report_loss(0);
  second.report_loss(17);
  for (const HostSegment* rank : {&leader, &first, &second}) EXPECT_EQ(rank->reported_loss(), 0);
}

TEST(HostSegment, AReportOfALossWakesThoseThatSleep) {
  const auto layout = small_layout(2);
  SegmentMemory memory(layout.total_bytes());
  HostSegment leader(memory.bytes(), layout, 1, 0);
  HostSegment rank(memory.bytes(), layout, 1, 1);
  EpollWaiter leaders_waiter;
  rank.set_doorbell(0, copy_of(leaders_waiter.doorbell_fd()));
  std::thread sleeper([&] {
    leader.set_asleep(true);
    std::vector<uint64_t> ready;
    while (leader.reported_loss() == kNoRank) leaders_waiter.wait(std::nullopt, ready);
  });
  while (!leader.is_asleep()) std::this_thread::yield();
  rank.report_loss(5);
  sleeper.join();
  EXPECT_EQ(leader.reported_loss(), 5);
}

TEST(HostSegment, IsNotMappedInAForkedChild) {
  const auto segment = HostSegment::create(small_layout(1), 1);
  const auto room = segment->staging().reserve({0, 0}, 8);
  ASSERT_TRUE(room);
  (*room)[0] = std::byte{1};
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char present;
    // mincore returns ENOMEM for an unmapped page.
    auto* page =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(room->data()) & ~uintptr_t{4095});
    ::_exit(::mincore(page, 1, &present) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Counts to `rounds` with the other rank: each publishes its number and adds up the numbers of the
/// other.
uint64_t count_together(HostSegment& segment, uint32_t rounds) {
  ShmGroup group(segment.staging(), {0, 1});
  uint64_t sum = 0;
  for (uint32_t unit = 0; unit < rounds; ++unit) {
    const Ticket ticket{1, unit};
    std::optional<MutableBytes> room;
    while (!(room = group.reserve(ticket, sizeof(uint64_t)))) ::sched_yield();
    const uint64_t mine = unit * 2 + static_cast<uint64_t>(group.rank());
    std::memcpy(room->data(), &mine, sizeof mine);
    const int peer = 1 - group.rank();
    group.publish(ticket, std::vector{Parcel{peer, 0, sizeof mine}});
    std::optional<ConstBytes> view;
    while (!(view = group.view(ticket, {peer, 0, sizeof mine}))) ::sched_yield();
    uint64_t theirs;
    std::memcpy(&theirs, view->data(), sizeof theirs);
    sum += mine + theirs;
    group.release(ticket);
  }
  return sum;
}

TEST(HostSegment, TwoProcessesMeetInOneSegment) {
  constexpr uint32_t kRounds = 2000;
  constexpr uint64_t kSum = uint64_t{kRounds} * (2 * kRounds - 1);
  const auto layout = small_layout(2);
  const auto leader = HostSegment::create(layout, 4);
  FileDescriptor passed = copy_of(leader->fd(), AtFork::keep);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto segment = HostSegment::open(std::move(passed), layout, 4, 1);
    ::_exit(count_together(*segment, kRounds) == kSum ? 0 : 1);
  }
  EXPECT_EQ(count_together(*leader, kRounds), kSum);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HostSegment, NamesTheCallThatItsKernelLacksAndTheRemedy) {
  const auto named = hvd::test::without(SYS_memfd_create, [] {
    try {
      HostSegment::create(small_layout(2), 1);
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.find("memfd_create (Linux 3.17)") != text.npos &&
             text.find("HOROVOD_TRANSPORT=tcp") != text.npos;
    }
    return false;
  });
  if (!named) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*named);
}

}  // namespace
}  // namespace hvd
