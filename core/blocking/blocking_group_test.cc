// Groups of ranks on one host, in shared memory and over TCP.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/blocking/blocking_group_testing.h"

namespace hvd::test {
namespace {

class BlockingGroups : public ::testing::TestWithParam<TransportChoice> {
 protected:
  void on_ranks(int size, const std::function<void(Member&, int)>& body) {
    knobs_.transport = GetParam();
    knobs_.staging_bytes = MiB;
    test::on_ranks(size, knobs_, body);
  }

  Knobs knobs_;
};

TEST_P(BlockingGroups, AddWhatTheirRanksHave) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{300'000}}) {
    on_ranks(3, [&](Member& member, int rank) {
      BlockingGroup group = member.group({0, 1, 2}, "all");
      EXPECT_EQ(group.rank(), rank);
      EXPECT_EQ(group.size(), 3);
      std::vector<int64_t> values(count);
      std::iota(values.begin(), values.end(), rank);
      group.run(sum_of(values));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], 3 * static_cast<int64_t>(i) + 3);
      group.leave();
    });
  }
}

TEST_P(BlockingGroups, HaveRanksOfTheirOwnInTheOrderOfTheJob) {
  on_ranks(4, [](Member& member, int rank) {
    if (rank == 0) return;
    BlockingGroup group = member.group({1, 2, 3}, "upper");
    EXPECT_EQ(group.rank(), rank - 1);
    std::vector<int64_t> value{rank};
    group.run(broadcast_of(value, 2));
    EXPECT_EQ(value[0], 3);
    group.leave();
  });
}

TEST_P(BlockingGroups, MayOverlapAndTakeTurns) {
  on_ranks(3, [](Member& member, int rank) {
    std::vector<std::unique_ptr<BlockingGroup>> pairs;  // of {0,1}, {1,2}, {0,2}
    std::vector<int> partners;
    for (const auto& [a, b] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{0, 2}}) {
      if (rank != a && rank != b) continue;
      const std::string name = std::to_string(a) + std::to_string(b);
      pairs.emplace_back(new BlockingGroup(member.group({a, b}, name)));
      partners.push_back(a + b - rank);
    }
    for (int turn = 0; turn < 100; ++turn) {
      for (size_t i = 0; i < pairs.size(); ++i) {
        std::vector<int64_t> value{rank * 100 + turn};
        pairs[i]->run(sum_of(value));
        ASSERT_EQ(value[0], (rank + partners[i]) * 100 + 2 * turn);
      }
    }
    for (const auto& pair : pairs) pair->leave();
  });
}

TEST_P(BlockingGroups, TakeSmallCallsAmongOthers) {
  on_ranks(2, [](Member& member, int rank) {
    BlockingGroup group = member.group({0, 1}, "both");
    for (int64_t turn = 0; turn < 100; ++turn) {
      const auto count = static_cast<size_t>(1 + turn * 37);
      std::vector<int64_t> first(count, rank + turn), second(count, rank - turn);
      ASSERT_LE(count * sizeof(int64_t), group.task_limits().reduced);
      group.run(eager_sum_of(first), [&] { return sum_of(first); });
      ASSERT_EQ(first, std::vector<int64_t>(count, 1 + 2 * turn));
      if (turn % 3 == 0) continue;
      group.run(sum_of(second));
      ASSERT_EQ(second, std::vector<int64_t>(count, 1 - 2 * turn));
    }
    group.leave();
  });
}

/// Enough calls to use every algorithm, with latency-bound calls between others. Over TCP no
/// algorithm is on trial.
void go_every_way(BlockingGroup group, TransportChoice transport) {
  const int64_t trials = transport == TransportChoice::tcp ? 0 : 2 * TimedChoice::kMostTrials;
  const int64_t turns = trials + 15;
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (const size_t count : {size_t{3}, size_t{3000}, size_t{20'000}, size_t{100'000}}) {
      std::vector<int64_t> values(count, group.rank() + turn);
      const TensorTask task = eager_sum_of(values);
      if (task.bytes() > group.task_limits().reduced)
        group.run(sum_of(values));  // over links
      else
        group.run(task, [&] { return sum_of(values); });
      const int64_t ranks = group.size(), sum = ranks * (ranks - 1) / 2 + ranks * turn;
      ASSERT_EQ(values, std::vector<int64_t>(count, sum)) << "turn " << turn;
    }
  }
  group.leave();
}

TEST_P(BlockingGroups, GiveTheSameByEveryWay) {
  on_ranks(3, [](Member& member, int) {
    go_every_way(member.group({0, 1, 2}, "all"), GetParam());
  });
  on_ranks(4, [](Member& member, int) {
    go_every_way(member.group({0, 1, 2, 3}, "all"), GetParam());
  });
}

TEST_P(BlockingGroups, GiveTheSameByEveryWayWithACoreForEachRank) {
  on_ranks(3, [](Member& member, int) {
    go_every_way(member.group({0, 1, 2}, "all", true), GetParam());
  });
}

/// One rank cannot write its result to the given address. A rank that has completed that call
/// detects the failure in its next call.
TEST(BlockingGroupInSharedMemory, FailsOnAllRanksWhereOneHasGivenUp) {
  MemStore store;
  const JobKey key = make_job_key();
  constexpr size_t kBytes = 16 * KiB;
  constexpr int kGoesWrong = 2, kTrials = TimedChoice::kMostTrials;
  const auto work = [&](int rank) {
    Member member(rank, 3, key, store, Knobs());
    BlockingGroup group = member.group({0, 1, 2}, "all");
    void* const nowhere = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::vector<std::byte> values(kBytes);
    const auto broadcast_to = [&](std::byte* memory) {
      const TensorTask task{.operation = {.kind = OperationKind::broadcast},
                            .input = memory,
                            .output = memory,
                            .rows = kBytes,
                            .row_bytes = 1};
      group.run(task, []() -> Batch { throw std::logic_error("it is small"); });
    };
    for (int call = 0; call < kTrials + 1; ++call) broadcast_to(values.data());
    try {
      broadcast_to(rank == kGoesWrong ? static_cast<std::byte*>(nowhere) : values.data());
      group.barrier();
      ADD_FAILURE() << "rank " << rank << " is told nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank == kGoesWrong ? Code::internal : Code::peer_lost);
      EXPECT_EQ(error.rank(), rank == kGoesWrong ? 0 : kGoesWrong) << error.what();
    }
    ::munmap(nowhere, kBytes);
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back(work, rank);
}

/// After any failure on one rank, the others must not wait for it.
TEST_P(BlockingGroups, FailOnAllRanksWhereOneHasNoMemory) {
  on_ranks(3, [](Member& member, int rank) {
    constexpr int kHasNone = 1;
    BlockingGroup group = member.group({0, 1, 2}, "all");
    std::vector<int64_t> values(2 * MiB / sizeof(int64_t), 1);
    auto* const bytes = reinterpret_cast<std::byte*>(values.data());
    const TensorTask task{
        .operation = {.dtype = DType::int64, .prescale = 2.0},  // only the executor supports it
        .input = bytes,
        .output = bytes,
        .rows = values.size(),
        .row_bytes = sizeof(int64_t)};
    try {
      group.run(task, [&]() -> Batch {
        if (rank == kHasNone) throw std::bad_alloc();
        return sum_of(values);
      });
      ADD_FAILURE() << "rank " << rank << " is told nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank == kHasNone ? Code::internal : Code::peer_lost);
      EXPECT_EQ(error.rank(), rank == kHasNone ? kNoRank : kHasNone) << error.what();
    }
    EXPECT_THROW(group.barrier(), Error);
    group.leave();
  });
}

TEST_P(BlockingGroups, PlanEveryAllreduceWhoseAlgorithmIsChosen) {
  knobs_.allreduce_algorithm = AlgorithmChoice::ring;
  on_ranks(2, [](Member& member, int) {
    BlockingGroup group = member.group({0, 1}, "both");
    EXPECT_EQ(group.task_limits().reduced, 0u);
    EXPECT_GT(group.task_limits().gathered, 0u);
    group.leave();
  });
}

TEST_P(BlockingGroups, AreThereTwiceForTheSameRanks) {
  on_ranks(2, [](Member& member, int rank) {
    BlockingGroup first = member.group({0, 1}, "first");
    BlockingGroup second = member.group({0, 1}, "second");
    std::vector<int64_t> a{rank}, b{10 * rank};
    second.run(sum_of(b));
    first.run(sum_of(a));
    EXPECT_EQ(a[0], 1);
    EXPECT_EQ(b[0], 10);
    first.leave();
    second.leave();
  });
}

TEST_P(BlockingGroups, LetNobodyPassABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  on_ranks(4, [&](Member& member, int) {
    BlockingGroup group = member.group({0, 1, 2, 3}, "all");
    for (int turn = 1; turn <= 50; ++turn) {
      ++arrived;
      group.barrier();
      ASSERT_GE(arrived, 4 * turn);
    }
    group.leave();
  });
}

TEST_P(BlockingGroups, NameTheRankThatDoesNotCome) {
  knobs_.start_timeout = std::chrono::seconds(1);
  for (const int missing : {0, 1}) {
    on_ranks(3, [missing](Member& member, int rank) {
      if (rank == missing) return;
      try {
        member.group({0, 1, 2}, "all");
        ADD_FAILURE() << "a group without one of its ranks";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::timed_out);
        EXPECT_EQ(error.rank(), missing);
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("rank {} has not created the group of ranks 0, 1 and 2 "
                              "within 1 s (HOROVOD_START_TIMEOUT)",
                              missing));
      }
    });
  }
}

/// Looks out for the second call, a barrier. Reports rank 1 as lost as soon as it is asked for.
class FoundSilent final : public Lookout {
 public:
  FoundSilent(std::atomic<int>& looking, bool is_lost) : looking_(looking), is_lost_(is_lost) {}
  void begin(const WaitingCall& call) override {
    EXPECT_EQ(call.kind, OperationKind::barrier);
    EXPECT_EQ(call.number, 2U);
    EXPECT_LT(call.since, std::chrono::steady_clock::now());
    ++looking_;
  }
  void end() noexcept override { --looking_; }
  std::optional<Error> loss(std::span<const int> ranks) override {
    EXPECT_EQ(std::vector<int>(ranks.begin(), ranks.end()), (std::vector{0, 1}));
    EXPECT_EQ(looking_, 1);
    if (!is_lost_) return std::nullopt;
    return Error(Code::peer_lost, "rank 1 is silent", 1);
  }

 private:
  std::atomic<int>& looking_;
  const bool is_lost_;
};

TEST_P(BlockingGroups, EndACallThatWaitsForASilentRank) {
  std::atomic<int> looking{0};
  std::latch has_failed(1);
  on_ranks(2, [&](Member& member, int rank) {
    BlockingGroup group = member.group({0, 1}, "both");
    group.barrier();
    if (rank == 1) {
      has_failed.wait();
      const auto twice = [&] {  // the other rank had come to the first one before it gave up
        group.barrier();
        group.barrier();
      };
      EXPECT_THROW(twice(), Error);
      return group.leave();
    }
    group.look_out_by(std::make_unique<FoundSilent>(looking, true));
    try {
      group.barrier();
      ADD_FAILURE() << "it waits for nobody";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.rank(), 1);
      EXPECT_STREQ(error.what(), "a call on a group: rank 1 is silent");
    }
    EXPECT_EQ(looking, 0);
    has_failed.count_down();
    group.leave();
  });
}

TEST_P(BlockingGroups, WaitForARankThatIsLateAndNotSilent) {
  std::atomic<int> looking{0};
  on_ranks(2, [&](Member& member, int rank) {
    BlockingGroup group = member.group({0, 1}, "both");
    std::vector<int64_t> values{1};
    group.run(eager_sum_of(values), [&] { return sum_of(values); });
    if (rank == 1) {
      while (looking == 0) std::this_thread::yield();
    } else {
      group.look_out_by(std::make_unique<FoundSilent>(looking, false));
    }
    group.barrier();
    group.leave();
  });
  EXPECT_EQ(looking, 0);
}

TEST_P(BlockingGroups, OfOneRankNeedNobody) {
  on_ranks(2, [](Member& member, int rank) {
    BlockingGroup group = member.group({rank}, "alone" + std::to_string(rank));
    std::vector<int64_t> values{7, 8};
    group.run(sum_of(values));
    group.barrier();
    EXPECT_EQ(values, (std::vector<int64_t>{7, 8}));
    group.leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, BlockingGroups,
                         ::testing::Values(TransportChoice::automatic, TransportChoice::tcp),
                         [](const auto& instance) {
                           return instance.param == TransportChoice::tcp ? "Tcp" : "SharedMemory";
                         });

}  // namespace
}  // namespace hvd::test
