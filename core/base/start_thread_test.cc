#include "core/base/start_thread.h"

#include <gtest/gtest.h>

#include <memory>

namespace hvd {
namespace {

bool is_blocked(int number) {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return sigismember(&now, number) == 1;
}

TEST(StartThread, TakesNoSignalButItsOwnFaults) {
  const bool before = is_blocked(SIGINT);
  bool signals = false, faults = true;
  start_thread([&, moved = std::make_unique<int>(1)] {
    signals = is_blocked(SIGINT) && is_blocked(SIGTERM) && is_blocked(SIGUSR1);
    faults = is_blocked(SIGSEGV) || is_blocked(SIGABRT);
  }).join();
  EXPECT_TRUE(signals);
  EXPECT_FALSE(faults);
  EXPECT_EQ(is_blocked(SIGINT), before) << "of the thread that has started it";
}

}  // namespace
}  // namespace hvd
