#include "core/engine/progress_thread.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/engine/host_testing.h"

namespace hvd {
namespace {

using test::Host;
using test::submit_sum;
using test::sum_of;

/// Consecutive operations for which no thread waits. The callback of each operation submits the
/// next one, on the thread that drives.
class Chain {
 public:
  Chain(ProgressThread& thread, int links) : thread_(thread), left_(links) {}

  void go_on() {
    Request request = sum_of("link", tensor_);
    request.has_handle = false;
    request.ended = [this](const Outcome& outcome) {
      EXPECT_EQ(outcome.code, Code::ok);
      if (left_.fetch_sub(1) > 1) go_on();
    };
    EXPECT_FALSE(thread_.submit(std::move(request)));
  }
  bool has_ended() const { return left_.load() <= 0; }
  float value() const { return tensor_[0]; }

 private:
  ProgressThread& thread_;
  std::atomic<int> left_;  ///< release by the progress engine, acquire by readers
  std::vector<float> tensor_ = std::vector<float>(16, 1.0f);
};

TEST(ProgressThread, BlockingCallsOneAfterTheOtherGiveTheSum) {
  for (const int ranks : {1, 2, 3, 4}) {
    Host host(ranks);
    host.run([&](int rank) {
      for (int i = 0; i < 200; ++i) {
        std::vector<float> tensor(static_cast<size_t>(1 + i * 13), 1.0f);
        const auto operation = submit_sum(host.thread(rank), "x", tensor);
        host.thread(rank).wait(operation->handle);
        ASSERT_EQ(operation->handle.outcome().code, Code::ok);
        ASSERT_THAT(tensor, ::testing::Each(static_cast<float>(ranks)));
      }
    });
  }
}

TEST(ProgressThread, ManyOperationsInFlightCompleteWithoutAnyoneWaiting) {
  Host host(3);
  host.run([&](int rank) {
    std::vector<std::vector<float>> tensors(100, std::vector<float>(3000, 1.0f));
    std::vector<std::shared_ptr<Completion>> operations;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t at = rank % 2 ? i : tensors.size() - 1 - i;  // in different orders
      operations.push_back(submit_sum(host.thread(rank), fmt::format("t{}", at), tensors[at]));
    }
    for (const auto& operation : operations) {
      while (!operation->handle.done()) std::this_thread::yield();
    }
    for (const auto& tensor : tensors) ASSERT_THAT(tensor, ::testing::Each(3.0f));
  });
}

TEST(ProgressThread, OperationsThatNobodyWaitsForTellThatTheyHaveEnded) {
  Host host(2);
  host.run([&](int rank) {
    for (int round = 0; round < 20; ++round) {
      Chain chain(host.thread(rank), 5);
      chain.go_on();
      std::vector<float> tensor(16, 1.0f);  // concurrently, another thread waits and drives
      const auto operation = submit_sum(host.thread(rank), "awaited", tensor);
      host.thread(rank).wait(operation->handle);
      while (!chain.has_ended()) std::this_thread::yield();
      ASSERT_EQ(chain.value(), 32.0f);
    }
  });
}

TEST(ProgressThread, SeveralThreadsOfARankMayWaitAtOnce) {
  constexpr int kThreads = 4;
  Host host(2);
  host.run([&](int rank) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> tensor(2000, 1.0f);
          const auto operation =
              submit_sum(host.thread(rank), fmt::format("thread{}", thread), tensor);
          host.thread(rank).wait(operation->handle);
          ASSERT_THAT(tensor, ::testing::Each(2.0f));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(ProgressThread, ATensorLargerThanStagingGoesInSegments) {
  Host host(2, {.staging_bytes = 64 * KiB});
  host.run([&](int rank) {
    std::vector<float> tensor(1 << 20, 0.5f);
    const auto operation = submit_sum(host.thread(rank), "large", tensor);
    host.thread(rank).wait(operation->handle);
    ASSERT_THAT(tensor, ::testing::Each(1.0f));
  });
}

TEST(ProgressThread, ShutdownByOneRankEndsWhatOthersWaitFor) {
  Host host(2);
  std::vector<float> tensor(10);
  const auto operation = submit_sum(host.thread(1), "lonely", tensor);
  host.run([&](int rank) {
    if (rank == 0) return host.thread(0).shutdown();
    host.thread(1).wait(operation->handle);
    EXPECT_EQ(operation->handle.outcome().code, Code::shut_down);
    EXPECT_EQ(operation->handle.outcome().rank, 0);
  });
}

TEST(ProgressThread, PollingGivesUpOnALateRankAndTheOperationCompletesLater) {
  Host host(2);
  std::atomic<bool> gave_up{false};
  host.run([&](int rank) {
    while (rank == 1 && !gave_up.load()) std::this_thread::yield();
    std::vector<float> tensor(2000, 1.0f);
    const auto operation = submit_sum(host.thread(rank), "x", tensor);
    if (rank == 0) {
      EXPECT_FALSE(host.thread(0).poll(operation->handle, std::chrono::microseconds{100}));
      gave_up = true;
    }
    while (!host.thread(rank).poll(operation->handle, std::chrono::microseconds{100})) {
    }
    EXPECT_EQ(operation->handle.outcome().code, Code::ok);
    EXPECT_THAT(tensor, ::testing::Each(2.0f));
  });
}

// A thread may start to wait while the engine thread completes its operation. It must not leave the
// engine thread parked.
TEST(ProgressThread, OperationsAfterAWaitThatWasOvertakenStillComplete) {
  Host host(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> awaited(64, 1.0f), polled(64, 1.0f);
    const auto first = submit_sum(host.thread(0), "awaited", awaited);
    host.thread(0).wait(first->handle);
    const auto second = submit_sum(host.thread(0), "polled", polled);
    while (!second->handle.done()) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace hvd
