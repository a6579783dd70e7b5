#include "core/engine/launcher_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

namespace hvd {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

struct Launcher {
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  Address address{"127.0.0.1", port_of(listener)};
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
  while (watch.deadline()) {
    clock.advance(*watch.deadline() - clock.now());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the kernel has its own clock
    ASSERT_EQ(watch.check(), std::nullopt);
  }
}

/// Fills the queue of the listener, so that further attempts get no answer.
std::vector<FileDescriptor> attempts_that_fill(const Launcher& launcher) {
  EXPECT_EQ(::listen(launcher.listener.get(), 0), 0);
  std::vector<FileDescriptor> attempts;
  std::string why;
  for (bool fits = true; fits;) {
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    attempts.push_back(try_connect_tcp(launcher.address, soon, why));
    fits = static_cast<bool>(attempts.back());
  }
  return attempts;
}

/// A second after the connection to a launcher has ended that gives no answer.
struct Unanswered {
  ManualClock clock;
  const Launcher launcher;
  const std::vector<FileDescriptor> others = attempts_that_fill(launcher);
  LauncherWatch watch{launcher.address, 3, clock};

  Unanswered() {
    watch.connection_ended();
    clock.advance(1s);
  }
};

TEST(LauncherWatch, WaitsForAnAnswerWithoutBlocking) {
  Unanswered attempt;
  auto& [clock, launcher, others, watch] = attempt;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(watch.check(), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 1s);
  ASSERT_TRUE(watch.deadline());
  EXPECT_GT(*watch.deadline(), clock.now());
  clock.advance(2s);
  EXPECT_THAT(watch.check().value_or(""), HasSubstr("no answer from 127.0.0.1:"));
  EXPECT_EQ(watch.deadline(), std::nullopt);
}

TEST(LauncherWatch, EndsItsAttemptIfTheLauncherDoesNotMatterAnyMore) {
  Unanswered attempt;
  auto& [clock, launcher, others, watch] = attempt;
  EXPECT_EQ(watch.check(), std::nullopt);
  watch.forget();
  clock.advance(2s);
  EXPECT_EQ(watch.deadline(), std::nullopt);
  EXPECT_EQ(watch.check(), std::nullopt);
}

}  // namespace
}  // namespace hvd
