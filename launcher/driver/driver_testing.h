// For tests of the driver: a job of three workers under a clock of the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <utility>
#include <vector>

#include "launcher/driver/driver.h"

namespace hvd::launcher {

using Actions = std::vector<Action>;

constexpr ExitStatus kOk{};
constexpr ExitStatus kRaised{.code = 1};
constexpr ExitStatus kKilled{.signal = SIGKILL};
constexpr ExitStatus kTerminated{.signal = SIGTERM};
constexpr ExitStatus kInterrupted{.signal = SIGINT};

/// Workers with ranks 0, 1 and 2 on host 0, or the last two on host 1.
constexpr WorkerId at(int slot) { return {.host = 0, .slot = slot}; }
constexpr WorkerId there(int slot) { return {.host = 1, .slot = slot}; }
inline const std::vector<WorkerId> kOnOneHost{at(0), at(1), at(2)};

class DriverTest : public ::testing::Test {
 protected:
  Actions on(std::vector<Event> events) { return driver.on(now, std::move(events)); }
  /// Advances the time to the next deadline.
  Actions wait() {
    const auto deadline = driver.deadline();
    EXPECT_TRUE(deadline.has_value());
    if (deadline) now = *deadline;
    return on({});
  }
  static Action first(const WorkerId& worker, ExitStatus status) {
    return Announce{.kind = Announce::Kind::first, .worker = worker, .status = status};
  }

  TimePoint now{};
  Driver driver{{.workers = kOnOneHost}};
};

}  // namespace hvd::launcher
