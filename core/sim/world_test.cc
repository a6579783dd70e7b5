#include "core/sim/world.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/sim/seeds.h"

namespace hvd::sim {
namespace {

using Operations = std::vector<std::shared_ptr<Completion>>;

bool all_done(const Operations& operations) {
  return std::all_of(operations.begin(), operations.end(),
                     [](const auto& operation) { return operation->handle.done(); });
}

std::string numbered(int i) { return fmt::format("t{}", i); }

std::vector<int> some_hosts(uint64_t seed) {
  const std::vector<std::vector<int>> shapes = {{1}, {2}, {3}, {4}, {1, 1}, {2, 1}, {3, 2, 2}};
  return shapes[seed % shapes.size()];
}

TEST(World, AllreduceGivesTheSumOnEveryRankInAnyOrder) {
  for (const uint64_t seed : seeds(60)) {
    World world({.ranks_per_host = some_hosts(seed), .seed = seed});
    std::mt19937_64 random(seed);
    constexpr int kTensors = 12;
    std::vector<std::vector<std::vector<float>>> tensors(world.size());
    Operations operations;
    for (int rank = 0; rank < world.size(); ++rank) {
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      tensors[rank].resize(kTensors);
      for (const int i : order) {
        tensors[rank][i].assign(static_cast<size_t>(1 + i * i * 37), static_cast<float>(rank + i));
        operations.push_back(world.submit(rank, allreduce(numbered(i), tensors[rank][i])));
      }
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    for (const auto& operation : operations) EXPECT_EQ(operation->handle.outcome().code, Code::ok);
    const int n = world.size();
    for (int rank = 0; rank < n; ++rank) {
      for (int i = 0; i < kTensors; ++i) {
        const float expected = static_cast<float>(n * i + n * (n - 1) / 2);
        EXPECT_THAT(tensors[rank][i], testing::Each(expected)) << "seed " << seed;
      }
    }
  }
}

TEST(World, AllgatherTakesDifferentFirstDimensionsAndEmptyOnes) {
  for (const uint64_t seed : seeds(30)) {
    World world({.ranks_per_host = {3, 1}, .seed = seed});
    std::vector<std::vector<float>> inputs = {{1, 2}, {}, {3}, {4, 5, 6}};
    Operations operations;
    for (int rank = 0; rank < 4; ++rank)
      operations.push_back(world.submit(rank, allgather("g", inputs[rank])));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    for (const auto& operation : operations) {
      ASSERT_EQ(operation->handle.outcome().code, Code::ok);
      const Gathered& output = operation->outputs[0].gathered;
      EXPECT_EQ(output.shape, Shape{6});
      const auto* values = reinterpret_cast<const float*>(output.memory.data());
      EXPECT_THAT(std::vector<float>(values, values + 6), testing::ElementsAre(1, 2, 3, 4, 5, 6));
    }
  }
}

TEST(World, OperationsInLevelsGiveWhatTheyGiveWithout) {
  for (const uint64_t seed : seeds(30)) {
    Knobs knobs;
    knobs.hierarchical_allreduce = knobs.hierarchical_allgather = true;
    World world({.ranks_per_host = {2, 2, 2}, .seed = seed, .knobs = knobs});
    std::vector<std::vector<float>> sums(6), parts(6);
    Operations gathers, operations;
    std::vector<float> expected;
    for (int rank = 0; rank < 6; ++rank) {
      sums[rank].assign(500 + seed, static_cast<float>(rank));
      parts[rank].assign(static_cast<size_t>(rank), static_cast<float>(rank));
      expected.insert(expected.end(), parts[rank].begin(), parts[rank].end());
    }
    for (int rank = 0; rank < 6; ++rank) {
      operations.push_back(world.submit(rank, allreduce("sum", sums[rank])));
      gathers.push_back(world.submit(rank, allgather("parts", parts[rank])));
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(operations) && all_done(gathers); }))
        << "seed " << seed;
    for (const auto& sum : sums) EXPECT_THAT(sum, testing::Each(15.0F)) << "seed " << seed;
    for (const auto& gather : gathers) {
      ASSERT_EQ(gather->handle.outcome().code, Code::ok);
      const auto* values =
          reinterpret_cast<const float*>(gather->outputs[0].gathered.memory.data());
      EXPECT_EQ(std::vector<float>(values, values + expected.size()), expected) << "seed " << seed;
    }
  }
}

TEST(World, BroadcastGivesTheRootsValueAndABarrierMovesNothing) {
  for (const uint64_t seed : seeds(30)) {
    World world({.ranks_per_host = {2, 2}, .seed = seed});
    std::vector<std::vector<float>> tensors(4, std::vector<float>(1000));
    std::iota(tensors[2].begin(), tensors[2].end(), 0.0f);
    const std::vector<float> expected = tensors[2];
    Operations operations;
    for (int rank = 0; rank < 4; ++rank) {
      operations.push_back(world.submit(rank, broadcast("b", tensors[rank], 2)));
      operations.push_back(world.submit(rank, barrier("barrier")));
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, expected);
  }
}

TEST(World, AMismatchIsOneErrorOnEveryRankAndTheNameGoesOn) {
  for (const uint64_t seed : seeds(30)) {
    World world({.ranks_per_host = {2, 1}, .seed = seed});
    std::vector<std::vector<float>> odd = {std::vector<float>(4), std::vector<float>(4),
                                           std::vector<float>(5)};
    Operations operations;
    for (int rank = 0; rank < 3; ++rank)
      operations.push_back(world.submit(rank, allreduce("w", odd[rank])));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    for (const auto& operation : operations) {
      EXPECT_EQ(operation->handle.outcome().code, Code::mismatch);
      EXPECT_THAT(operation->handle.outcome().text,
                  testing::AllOf(testing::HasSubstr("rank 2"), testing::HasSubstr("[4]"),
                                 testing::HasSubstr("[5]"), testing::HasSubstr("\"w\"")));
    }
    std::vector<std::vector<float>> even(3, std::vector<float>(4, 1.0f));
    operations.clear();
    for (int rank = 0; rank < 3; ++rank)
      operations.push_back(world.submit(rank, allreduce("w", even[rank])));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    for (const auto& tensor : even) EXPECT_THAT(tensor, testing::Each(3.0f));
  }
}

TEST(World, ANameInFlightIsRefusedOnItsRankAndTheFirstOneStaysValid) {
  World world({.ranks_per_host = {2}, .seed = 7});
  std::vector<float> first(3, 1.0f), second(3, 1.0f), other(3, 1.0f);
  const auto valid = world.submit(0, allreduce("x", first));
  const auto refused = world.submit(0, allreduce("x", second));
  ASSERT_TRUE(refused->handle.done());  // at once, on the submitting thread
  EXPECT_EQ(refused->handle.outcome().code, Code::invalid_argument);
  const auto partner = world.submit(1, allreduce("x", other));
  ASSERT_TRUE(world.run_until([&] { return all_done({valid, partner}); }));
  EXPECT_THAT(first, testing::Each(2.0f));
}

TEST(World, ShutdownByAnyRankCompletesWhatWasAgreedAndEndsTheRest) {
  for (const uint64_t seed : seeds(60)) {
    World world({.ranks_per_host = some_hosts(seed), .seed = seed});
    const int n = world.size();
    std::vector<std::vector<float>> agreed(n, std::vector<float>(5000, 1.0f));
    std::vector<std::vector<float>> lonely(n, std::vector<float>(10));
    Operations complete, pending;
    for (int rank = 0; rank < n; ++rank)
      complete.push_back(world.submit(rank, allreduce("agreed", agreed[rank])));
    for (int rank = 1; rank < n; ++rank)  // rank 0 never submits it
      pending.push_back(world.submit(rank, allreduce("lonely", lonely[rank])));
    const int by = static_cast<int>(seed % static_cast<uint64_t>(n));
    if (seed % 2 == 0) {
      ASSERT_TRUE(world.run_until([&] { return complete[0]->handle.done(); }));
    }
    world.shutdown(by);
    ASSERT_TRUE(world.run_until([&] {
      for (int rank = 0; rank < n; ++rank) {
        if (!world.finished(rank)) return false;
      }
      return true;
    })) << "seed "
        << seed;
    // It must have run on all ranks or on none.
    for (const auto& operation : complete)
      EXPECT_EQ(operation->handle.outcome().code, complete[0]->handle.outcome().code);
    if (seed % 2 == 0) {
      EXPECT_EQ(complete[0]->handle.outcome().code, Code::ok);
    }
    for (const auto& operation : pending) {
      EXPECT_EQ(operation->handle.outcome().code, Code::shut_down);
      EXPECT_EQ(operation->handle.outcome().rank, by);
    }
  }
}

// It waits for another rank of its set. A rank that is in no set waits for the goodbyes of both for
// the time of the knob, and is gone then.
TEST(World, RanksThatDrainForLongEndWellAndAsSoonAsTheyCan) {
  const std::vector<std::vector<int>> shapes = {{3}, {2, 1}, {1, 2}, {1, 1, 1}};
  for (const uint64_t seed : seeds(48)) {
    std::vector<std::vector<float>> tensors(3, std::vector<float>(1000000, 1.0f));
    World world({.ranks_per_host = shapes[seed % shapes.size()],
                 .seed = seed,
                 .shared_memory = seed / 4 % 2 == 0,
                 .least_link_bytes = 16 * KiB});
    const int alone = static_cast<int>(seed / 8 % 3), slow = (alone + 1) % 3,
              waits = (alone + 2) % 3;
    Operations operations;
    for (int rank = 0; rank < 3; ++rank)
      operations.push_back(
          world.submit(rank, add_process_set({std::min(slow, waits), std::max(slow, waits)})));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); }));
    const auto set = world.process_sets(0).find(operations[0]->number);
    operations.clear();
    for (const int rank : {slow, waits})
      operations.push_back(world.submit(rank, on(*set, allreduce("agreed", tensors[rank]))));
    ASSERT_TRUE(world.run_until([&] { return world.is_moving_data(); }));
    world.shutdown(alone);
    ASSERT_TRUE(world.run_until([&] { return world.ending(alone).code != Code::ok; }));
    world.stop(slow);
    EXPECT_FALSE(operations[0]->handle.done()) << "seed " << seed;
    ASSERT_TRUE(world.run_until([&] { return world.finished(alone); }, 3)) << "seed " << seed;
    const TimePoint since = world.now();
    EXPECT_GE(since - TimePoint{}, Knobs().peer_timeout);
    world.resume(slow);
    const auto have_ended = [&] { return world.finished(slow) && world.finished(waits); };
    ASSERT_TRUE(world.run_until(have_ended)) << "seed " << seed << ": it waits for a rank";
    for (const auto& operation : operations) EXPECT_EQ(operation->handle.outcome().code, Code::ok);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(world.ending(rank).code, Code::shut_down) << world.ending(rank).text;
      EXPECT_EQ(world.ending(rank).rank, alone);
    }
  }
}

TEST(World, EveryRankEndsAndNamesTheOneThatIsLost) {
  for (const uint64_t seed : seeds(100)) {
    // Must outlive the world: the engine of the lost rank never releases its memory.
    std::vector<std::vector<float>> tensors(5, std::vector<float>(20000, 1.0f));
    World world({.ranks_per_host = seed % 2 ? std::vector<int>{4} : std::vector<int>{2, 1, 2},
                 .seed = seed});
    const int n = world.size();
    const int lost = static_cast<int>(seed / 2 % static_cast<uint64_t>(n));
    Operations operations(n);
    const auto submit_all = [&](int step) {
      for (int rank = 0; rank < n; ++rank) {
        if (step == 0 || operations[rank]->handle.done())
          operations[rank] = world.submit(rank, allreduce(numbered(step), tensors[rank]));
      }
    };
    submit_all(0);
    std::mt19937_64 random(seed);
    int countdown = static_cast<int>(random() % 400);
    world.run_until([&] { return --countdown < 0; });
    world.lose(lost);
    const bool ended = world.run_until(
        [&] {
          for (int rank = 0; rank < n; ++rank) {
            if (rank != lost && world.ending(rank).code == Code::ok) return false;
          }
          return true;
        },
        3);
    ASSERT_TRUE(ended) << "seed " << seed << " lost " << lost;
    for (int rank = 0; rank < n; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(world.ending(rank).code, Code::peer_lost);
      EXPECT_EQ(world.ending(rank).rank, lost) << "seed " << seed << " rank " << rank;
      EXPECT_TRUE(operations[rank]->handle.done());
    }
  }
}

TEST(World, AStallThatLastsTooLongEndsTheJobWithTheReport) {
  Knobs knobs;
  knobs.stall_check = std::chrono::seconds(1);
  knobs.stall_shutdown = std::chrono::seconds(2);
  knobs.log_level = LogLevel::fatal;
  World world({.ranks_per_host = {2, 1}, .seed = 5, .knobs = knobs});
  std::vector<float> a(3), b(3);
  const Operations operations = {world.submit(0, allreduce("grad", a)),
                                 world.submit(2, allreduce("grad", b))};
  ASSERT_TRUE(world.run_until([&] { return all_done(operations); }, 40));
  const Outcome& outcome = operations[0]->handle.outcome();
  EXPECT_EQ(outcome.code, Code::shut_down);
  EXPECT_THAT(outcome.text,
              testing::AllOf(testing::HasSubstr("grad"), testing::HasSubstr("Missing ranks:\n1")));
  EXPECT_GE(world.counters(0).stalls, 1);
  EXPECT_EQ(world.counters(1).stalls, 0);
  EXPECT_EQ(world.counters(2).failed, 1);
}

TEST(World, TheSameSeedIsTheSameRun) {
  const auto run = [](uint64_t seed) {
    World world({.ranks_per_host = {2, 2}, .seed = seed});
    std::vector<std::vector<float>> tensors(4, std::vector<float>(3000, 0.1f));
    Operations operations;
    for (int rank = 0; rank < 4; ++rank)
      operations.push_back(world.submit(rank, allreduce("t", tensors[rank])));
    int steps = 0;
    EXPECT_TRUE(world.run_until([&] { return ++steps, all_done(operations); }));
    return std::pair{steps, tensors};
  };
  EXPECT_EQ(run(11), run(11));
}

Request timed(const std::string& name, std::chrono::milliseconds timeout) {
  Request made = barrier(name);
  made.timeout = timeout;
  return made;
}

TEST(World, ATimeoutEndsTheJobAndNamesTheMissingRank) {
  for (const bool checks_stalls : {false, true}) {
    Knobs knobs;
    knobs.stall_check_disable = !checks_stalls;
    knobs.log_level = LogLevel::fatal;
    World world({.ranks_per_host = {2, 2}, .seed = 3, .knobs = knobs});
    Operations waiting;
    for (int rank = 0; rank < 3; ++rank) {
      Request late = barrier("late");
      if (rank == 1) late.timeout = std::chrono::milliseconds(500);
      waiting.push_back(world.submit(rank, std::move(late)));
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(waiting); }, 3));
    for (const auto& one : waiting) {
      EXPECT_EQ(one->handle.outcome().code, Code::shut_down);
      EXPECT_THAT(one->handle.outcome().text,
                  testing::HasSubstr("late has waited for 0.5 s, its timeout: submitted by ranks "
                                     "0-2, not by rank 3"));
    }
  }
}

TEST(World, ATimeoutOfWhatIsAgreedEndsNothing) {
  World world({.ranks_per_host = {1, 1}, .seed = 4});
  std::vector<float> tensor(3);
  const auto waiting = world.submit(0, allreduce("without a timeout", tensor));
  for (int round = 0; round < 3; ++round) {
    Operations operations;
    for (int rank = 0; rank < 2; ++rank) {
      operations.push_back(world.submit(rank, timed("b", std::chrono::seconds(1))));
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); }));
    EXPECT_FALSE(world.run_until([] { return false; }, 2)) << "only the time passes";
    for (const auto& operation : operations) EXPECT_EQ(operation->handle.outcome().code, Code::ok);
    EXPECT_EQ(world.ending(0).code, Code::ok);
    EXPECT_FALSE(waiting->handle.done());
  }
}

bool is_running(const World& world) {
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.ending(rank).code != Code::ok) return false;
  }
  return true;
}

TEST(World, TheTimeInWhichAJobIsSuspendedIsNotCounted) {
  Knobs knobs;
  knobs.stall_check = knobs.stall_shutdown = std::chrono::seconds(60);
  knobs.log_level = LogLevel::fatal;
  for (const auto timeout : {std::chrono::seconds(0), std::chrono::seconds(30)}) {
    World world({.ranks_per_host = {2, 1}, .seed = 6, .knobs = knobs});
    Operations operations{world.submit(0, timed("b", timeout)),
                          world.submit(1, timed("b", timeout))};
    const auto seconds_pass = [&](int times) {
      EXPECT_FALSE(world.run_until([] { return false; }, times));
    };
    seconds_pass(1);  // to the first tick, or the first look
    world.suspend(std::chrono::hours(1));
    seconds_pass(0);
    EXPECT_TRUE(is_running(world)) << world.ending(0).text;
    operations.push_back(world.submit(2, timed("b", timeout)));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); }));
    for (const auto& operation : operations) EXPECT_EQ(operation->handle.outcome().code, Code::ok);
  }
}

TEST(World, ATimeoutExpiresAfterAJobWasSuspended) {
  Knobs knobs;
  knobs.log_level = LogLevel::fatal;
  World world({.ranks_per_host = {2}, .seed = 6, .knobs = knobs});
  const auto waiting = world.submit(0, timed("b", std::chrono::seconds(30)));
  EXPECT_FALSE(world.run_until([] { return false; }, 1));
  world.suspend(std::chrono::hours(1));
  ASSERT_TRUE(world.run_until([&] { return waiting->handle.done(); }, 4));
  EXPECT_THAT(waiting->handle.outcome().text, testing::HasSubstr("30 s, its timeout"));
}

/// The end of a message from rank 0 to rank 1 that `rank` submits.
Request message(std::vector<float>& tensor) {
  Request made = broadcast("m", tensor, 0);
  made.signature.operation.kind = OperationKind::message;
  made.signature.members = {0, 1};
  return made;
}

TEST(World, AReportThatASilentRankDelaysDoesNotEndTheJobForWhatIsCompleteMeanwhile) {
  for (const bool checks_stalls : {false, true}) {
    Knobs knobs;
    knobs.stall_check_disable = !checks_stalls;
    knobs.log_level = LogLevel::fatal;
    World world({.ranks_per_host = {2, 1}, .seed = 8, .knobs = knobs});
    std::vector<float> sent(3, 1.0f), received(3);
    Request send = message(sent);
    send.timeout = std::chrono::milliseconds(500);
    Operations operations{world.submit(0, std::move(send))};
    world.stop(2);
    EXPECT_FALSE(world.run_until([] { return false; }, 1)) << "the timeout has expired";
    operations.push_back(world.submit(1, message(received)));
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); }));
    EXPECT_FALSE(world.run_until([] { return false; }, 20)) << "the report comes";
    EXPECT_TRUE(is_running(world)) << world.ending(0).text;
  }
}

TEST(World, ATimeoutEndsTheJobThoughARankIsSilent) {
  for (const bool checks_stalls : {false, true}) {
    Knobs knobs;
    knobs.stall_check_disable = !checks_stalls;
    knobs.log_level = LogLevel::fatal;
    World world({.ranks_per_host = {2, 1}, .seed = 8, .knobs = knobs});
    const auto waiting = world.submit(0, timed("b", std::chrono::seconds(30)));
    world.stop(1);
    world.stop(2);
    ASSERT_TRUE(world.run_until([&] { return waiting->handle.done(); }, 60));
    EXPECT_THAT(
        waiting->handle.outcome().text,
        testing::AllOf(testing::StartsWith("barrier \"b\": one or more of ranks 1, 2 did not"),
                       testing::HasSubstr("no answer from ranks 1, 2")));
    world.resume(1);
    world.resume(2);
  }
}

}  // namespace
}  // namespace hvd::sim
