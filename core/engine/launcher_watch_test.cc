#include "core/engine/launcher_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

namespace hvd {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

struct Launcher {
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  Address address{"127.0.0.1", port_of(listener)};

  /// Waits until the kernel has made a connection that nobody has accepted yet.
  void await_connection() const {
    const TimePoint until = std::chrono::steady_clock::now() + 60s;
    EXPECT_TRUE(wait_until_ready(listener.get(), POLLIN, until));
  }
};

TEST(LauncherWatch, LooksOnlyAfterTheEndOfTheConnection) {
  ManualClock clock;
  Launcher launcher;
  LauncherWatch watch(launcher.address, 3, clock);
  launcher.listener.reset();
  clock.advance(10s);
  EXPECT_EQ(watch.deadline(), std::nullopt);
  EXPECT_EQ(watch.check(), std::nullopt);
  watch.connection_ended();
  EXPECT_EQ(watch.check(), std::nullopt);  // the loss of a rank has some time to arrive
  ASSERT_TRUE(watch.deadline());
  clock.advance(*watch.deadline() - clock.now());
  const auto seen = watch.check();
  ASSERT_TRUE(seen);
  EXPECT_THAT(*seen, HasSubstr("horovodrun on host 127.0.0.1 has closed its connection to rank 3"));
  EXPECT_THAT(*seen, HasSubstr("Connection refused"));
  EXPECT_EQ(watch.deadline(), std::nullopt);
  EXPECT_EQ(watch.check(), std::nullopt);  // said once
}

TEST(LauncherWatch, TrustsALauncherThatStillListens) {
  ManualClock clock;
  Launcher launcher;
  LauncherWatch watch(launcher.address, 3, clock);
  watch.connection_ended();
  clock.advance(*watch.deadline() - clock.now());
  EXPECT_EQ(watch.check(), std::nullopt);
  launcher.await_connection();
  if (watch.deadline()) {
    clock.advance(*watch.deadline() - clock.now());
    EXPECT_EQ(watch.check(), std::nullopt);
  }
  EXPECT_EQ(watch.deadline(), std::nullopt);
}

/// Fills the queue of the listener, so that further attempts get no answer.
FileDescriptor attempt_that_fills(const Launcher& launcher) {
  EXPECT_EQ(::listen(launcher.listener.get(), 0), 0);  // Linux then queues one connection
  FileDescriptor attempt = connect_tcp(launcher.address, std::chrono::steady_clock::now() + 60s);
  launcher.await_connection();
  return attempt;
}

/// A second after the connection to a launcher has ended that gives no answer.
struct Unanswered {
  ManualClock clock;
  const Launcher launcher;
  const FileDescriptor other = attempt_that_fills(launcher);
  LauncherWatch watch{launcher.address, 3, clock};

  Unanswered() {
    watch.connection_ended();
    clock.advance(1s);
  }
};

/// A call that blocked would return with the end of the attempt.
TEST(LauncherWatch, WaitsForAnAnswerWithoutBlocking) {
  Unanswered attempt;
  auto& [clock, launcher, other, watch] = attempt;
  EXPECT_EQ(watch.check(), std::nullopt);
  ASSERT_TRUE(watch.deadline()) << "it is still undecided";
  EXPECT_GT(*watch.deadline(), clock.now());
  clock.advance(2s);
  EXPECT_THAT(watch.check().value_or(""), HasSubstr("no answer from 127.0.0.1:"));
  EXPECT_EQ(watch.deadline(), std::nullopt);
}

TEST(LauncherWatch, EndsItsAttemptIfTheLauncherDoesNotMatterAnyMore) {
  Unanswered attempt;
  auto& [clock, launcher, other, watch] = attempt;
  EXPECT_EQ(watch.check(), std::nullopt);
  watch.forget();
  clock.advance(2s);
  EXPECT_EQ(watch.deadline(), std::nullopt);
  EXPECT_EQ(watch.check(), std::nullopt);
}

}  // namespace
}  // namespace hvd
