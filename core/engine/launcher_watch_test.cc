#include "core/engine/launcher_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

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
  EXPECT_THAT(*seen,
              testing::HasSubstr(
                  "horovodrun on host 127.0.0.1 has closed its connection to rank 3, which "));
  EXPECT_THAT(*seen, testing::HasSubstr("Connection refused"));
  EXPECT_EQ(watch.deadline(), std::nullopt);
  EXPECT_EQ(watch.check(), std::nullopt);  // said once
}

TEST(LauncherWatch, TrustsALauncherThatStillListens) {
  ManualClock clock;
  Launcher launcher;
  LauncherWatch watch(launcher.address, 3, clock);
  watch.connection_ended();
  clock.advance(1s);
  EXPECT_EQ(watch.check(), std::nullopt);
  EXPECT_EQ(watch.deadline(), std::nullopt);
}

}  // namespace
}  // namespace hvd
