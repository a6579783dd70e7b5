// Whole jobs with their real threads, waiters and shared memory; the ranks share one process, so
// that a sanitizer sees every access.
#include "core/engine/driver.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/group/segment_memory.h"
#include "core/transport/epoll_waiter.h"

namespace hvd {
namespace {

constexpr uint32_t kGeneration = 1;
constexpr size_t kRingBytes = 4096;

int duplicate(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }

/// Drivers of one host's ranks on one mapping.
class Host {
 public:
  explicit Host(int ranks, size_t staging_bytes = 256 * KiB)
      : layout_(SegmentLayout::of(ranks, staging_bytes, kRingBytes)),
        memory_(layout_.total_bytes()) {
    std::vector<Wiring> wirings(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      Wiring& wiring = wirings[rank];
      wiring.identity.rank = wiring.identity.local_rank = rank;
      wiring.identity.size = wiring.identity.local_size = ranks;
      wiring.topology = Topology::of({ranks});
      wiring.generation = kGeneration;
      wiring.waiter = std::make_unique<EpollWaiter>();
      wiring.segment = std::make_unique<HostSegment>(memory_.bytes(), layout_, kGeneration, rank);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int peer = 0; peer < ranks; ++peer) {
        wirings[rank].segment->set_doorbell(
            peer, FileDescriptor(duplicate(wirings[peer].waiter->doorbell_fd())));
      }
      if (rank == 0) continue;
      wirings[rank].parent = channel(wirings[rank], 0);
      wirings[0].children.push_back({rank, channel(wirings[0], rank)});
    }
    for (int rank = 0; rank < ranks; ++rank) {
      auto engine = std::make_unique<Engine>(std::move(wirings[rank]), Knobs{}, clock_,
                                             [](const Ending&, bool) {});
      drivers_.push_back(std::make_unique<Driver>(std::move(engine), DriverOptions{}));
    }
  }
  ~Host() {
    std::vector<std::thread> ending;
    for (auto& driver : drivers_) ending.emplace_back([&driver] { driver.reset(); });
    for (std::thread& thread : ending) thread.join();
  }

  int size() const { return static_cast<int>(drivers_.size()); }
  Driver& driver(int rank) { return *drivers_[rank]; }

  /// Runs `body(rank)` on a thread a rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([=] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static std::unique_ptr<Channel> channel(Wiring& from, int to) {
    return std::make_unique<Channel>(from.segment->control_link(to, to), to, kGeneration);
  }

  SegmentLayout layout_;
  SegmentMemory memory_;
  SystemClock clock_;
  std::vector<std::unique_ptr<Driver>> drivers_;
};

Request sum_of(const std::string& name, std::vector<float>& tensor) {
  Request request;
  request.name = name;
  request.signature.name = hash_name(name);
  request.signature.dtype = DType::float32;
  const Shape shape{static_cast<int64_t>(tensor.size())};
  request.signature.shapes = {shape};
  auto* data = reinterpret_cast<std::byte*>(tensor.data());
  request.tensors = {{.input = data, .output = data, .shape = shape}};
  request.operation = std::make_shared<Operation>();
  return request;
}

std::shared_ptr<Operation> submit_sum(Driver& driver, const std::string& name,
                                      std::vector<float>& tensor) {
  Request request = sum_of(name, tensor);
  auto operation = request.operation;
  EXPECT_EQ(driver.submit(std::move(request)), Pushed::accepted);
  return operation;
}

/// Operations that nobody waits for, one after the other: each is submitted by the callback of the
/// one before, which runs on whatever thread drives.
class Chain {
 public:
  Chain(Driver& driver, int links) : driver_(driver), left_(links) {}

  void go_on() {
    Request request = sum_of("link", tensor_);
    request.has_handle = false;
    request.ended = [this](const Outcome& outcome) {
      EXPECT_EQ(outcome.code, Code::ok);
      if (left_.fetch_sub(1) > 1) go_on();
    };
    EXPECT_EQ(driver_.submit(std::move(request)), Pushed::accepted);
  }
  bool has_ended() const { return left_.load() <= 0; }
  float value() const { return tensor_[0]; }

 private:
  Driver& driver_;
  std::atomic<int> left_;  ///< release by the driver, acquire by who looks at the value
  std::vector<float> tensor_ = std::vector<float>(16, 1.0f);
};

TEST(Driver, BlockingCallsOneAfterTheOtherGiveTheSum) {
  for (const int ranks : {1, 2, 3, 4}) {
    Host host(ranks);
    host.run([&](int rank) {
      for (int i = 0; i < 200; ++i) {
        std::vector<float> tensor(static_cast<size_t>(1 + i * 13), 1.0f);
        const auto operation = submit_sum(host.driver(rank), "x", tensor);
        host.driver(rank).wait(operation->handle);
        ASSERT_EQ(operation->handle.outcome().code, Code::ok);
        ASSERT_THAT(tensor, testing::Each(static_cast<float>(ranks)));
      }
    });
  }
}

TEST(Driver, ManyOperationsInFlightCompleteWithoutAnyoneWaiting) {
  Host host(3);
  host.run([&](int rank) {
    std::vector<std::vector<float>> tensors(100, std::vector<float>(3000, 1.0f));
    std::vector<std::shared_ptr<Operation>> operations;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t at = rank % 2 ? i : tensors.size() - 1 - i;  // in different orders
      operations.push_back(submit_sum(host.driver(rank), fmt::format("t{}", at), tensors[at]));
    }
    for (const auto& operation : operations) {
      while (!operation->handle.done()) std::this_thread::yield();
    }
    for (const auto& tensor : tensors) ASSERT_THAT(tensor, testing::Each(3.0f));
  });
}

TEST(Driver, OperationsThatNobodyWaitsForTellThatTheyHaveEnded) {
  Host host(2);
  host.run([&](int rank) {
    for (int round = 0; round < 20; ++round) {
      Chain chain(host.driver(rank), 5);
      chain.go_on();
      std::vector<float> tensor(16, 1.0f);  // beside them, somebody waits and drives
      const auto operation = submit_sum(host.driver(rank), "awaited", tensor);
      host.driver(rank).wait(operation->handle);
      while (!chain.has_ended()) std::this_thread::yield();
      ASSERT_EQ(chain.value(), 32.0f);
    }
  });
}

TEST(Driver, SeveralThreadsOfARankMayWaitAtOnce) {
  constexpr int kThreads = 4;
  Host host(2);
  host.run([&](int rank) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> tensor(2000, 1.0f);
          const auto operation =
              submit_sum(host.driver(rank), fmt::format("thread{}", thread), tensor);
          host.driver(rank).wait(operation->handle);
          ASSERT_THAT(tensor, testing::Each(2.0f));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Driver, ATensorLargerThanStagingGoesInSegments) {
  Host host(2, 64 * KiB);
  host.run([&](int rank) {
    std::vector<float> tensor(1 << 20, 0.5f);
    const auto operation = submit_sum(host.driver(rank), "large", tensor);
    host.driver(rank).wait(operation->handle);
    ASSERT_THAT(tensor, testing::Each(1.0f));
  });
}

TEST(Driver, ShutdownByOneRankEndsWhatOthersWaitFor) {
  Host host(2);
  std::vector<float> tensor(10);
  const auto operation = submit_sum(host.driver(1), "lonely", tensor);
  host.run([&](int rank) {
    if (rank == 0) return host.driver(0).shutdown();
    host.driver(1).wait(operation->handle);
    EXPECT_EQ(operation->handle.outcome().code, Code::shut_down);
    EXPECT_EQ(operation->handle.outcome().rank, 0);
  });
}

// A thread that comes to wait while the engine thread completes its operation must not leave that
// one parked without having said so.
TEST(Driver, OperationsAfterAWaitThatWasOvertakenStillComplete) {
  Host host(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> awaited(64, 1.0f), polled(64, 1.0f);
    const auto first = submit_sum(host.driver(0), "awaited", awaited);
    host.driver(0).wait(first->handle);
    const auto second = submit_sum(host.driver(0), "polled", polled);
    while (!second->handle.done()) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace hvd
