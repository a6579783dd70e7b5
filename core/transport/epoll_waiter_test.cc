#include "core/transport/epoll_waiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct SocketPair {
  SocketPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours = FileDescriptor(fds[0]);
    theirs = FileDescriptor(fds[1]);
  }
  FileDescriptor ours, theirs;
};

TimePoint now() { return std::chrono::steady_clock::now(); }

TEST(EpollWaiter, ReportsTheTagWhileThereIsSomethingToRead) {
  EpollWaiter waiter;
  SocketPair pair;
  waiter.watch(pair.ours.get(), 42);
  std::vector<uint64_t> ready;
  waiter.poll(ready);
  EXPECT_THAT(ready, IsEmpty());
  ASSERT_EQ(::write(pair.theirs.get(), "x", 1), 1);
  waiter.wait(std::nullopt, ready);
  waiter.poll(ready);
  EXPECT_THAT(ready, ElementsAre(42, 42));
}

TEST(EpollWaiter, ReportsAClosedPeer) {
  EpollWaiter waiter;
  SocketPair pair;
  waiter.watch(pair.ours.get(), 7);
  pair.theirs.reset();
  std::vector<uint64_t> ready;
  waiter.wait(std::nullopt, ready);
  EXPECT_THAT(ready, ElementsAre(7));
}

TEST(EpollWaiter, ReportsTheEndAloneIfAsked) {
  EpollWaiter waiter;
  SocketPair pair;
  waiter.watch_end(pair.ours.get(), 7);
  std::vector<uint64_t> ready;
  ASSERT_EQ(::write(pair.theirs.get(), "x", 1), 1);
  waiter.poll(ready);
  EXPECT_THAT(ready, IsEmpty());
  pair.theirs.reset();
  waiter.wait(std::nullopt, ready);
  EXPECT_THAT(ready, ElementsAre(7));
}

TEST(EpollWaiter, ReportsRoomToWriteOnlyWhenAsked) {
  EpollWaiter waiter;
  SocketPair pair;
  waiter.watch(pair.ours.get(), 7);
  std::vector<uint64_t> ready;
  waiter.watch_writable(pair.ours.get(), 7, true);
  waiter.poll(ready);
  EXPECT_THAT(ready, ElementsAre(7));
  ready.clear();
  waiter.watch_writable(pair.ours.get(), 7, false);
  waiter.poll(ready);
  EXPECT_THAT(ready, IsEmpty());
}

TEST(EpollWaiter, ForgetsADescriptor) {
  EpollWaiter waiter;
  SocketPair pair;
  waiter.watch(pair.ours.get(), 7);
  pair.theirs.reset();
  waiter.forget(pair.ours.get());
  std::vector<uint64_t> ready;
  waiter.poll(ready);
  EXPECT_THAT(ready, IsEmpty());
}

TEST(EpollWaiter, EndsAtTheDeadline) {
  EpollWaiter waiter;
  std::vector<uint64_t> ready;
  const auto until = now() + std::chrono::milliseconds(5);
  waiter.wait(until, ready);
  EXPECT_GE(now(), until);
  EXPECT_THAT(ready, IsEmpty());
}

TEST(EpollWaiter, ARingFromAnotherThreadEndsTheWait) {
  EpollWaiter waiter;
  std::vector<uint64_t> ready;
  std::thread other([&] { waiter.ring(); });
  waiter.wait(std::nullopt, ready);  // would not return otherwise
  other.join();
  EXPECT_THAT(ready, IsEmpty());
}

TEST(EpollWaiter, RingsAreAnsweredOnceByAWaitOrAPoll) {
  EpollWaiter waiter;
  std::vector<uint64_t> ready;
  waiter.ring();
  waiter.ring();
  waiter.wait(std::nullopt, ready);
  waiter.ring();
  waiter.poll(ready);
  const auto until = now() + std::chrono::milliseconds(5);
  waiter.wait(until, ready);
  EXPECT_GE(now(), until);
  EXPECT_THAT(ready, IsEmpty());
}

TEST(EpollWaiter, AParkedThreadSeesARingAndTakesNothing) {
  EpollWaiter waiter;
  std::vector<uint64_t> ready;
  std::thread other([&] { waiter.ring(); });
  waiter.park(std::nullopt);
  other.join();
  waiter.park(std::nullopt);         // still rung
  waiter.wait(std::nullopt, ready);  // still rung
  const auto until = now() + std::chrono::milliseconds(5);
  waiter.park(until);
  EXPECT_GE(now(), until);
}

TEST(EpollWaiter, APeerThatWritesToTheDoorbellRings) {
  EpollWaiter waiter;
  const uint64_t one = 1;
  ASSERT_EQ(::write(waiter.doorbell_fd(), &one, sizeof one), ssize_t{sizeof one});
  std::vector<uint64_t> ready;
  waiter.wait(std::nullopt, ready);
  EXPECT_THAT(ready, IsEmpty());
}

}  // namespace
}  // namespace hvd
