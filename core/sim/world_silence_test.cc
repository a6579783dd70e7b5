// Ranks that stop without an end of their process: they are given up if others wait for them, and
// only then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/sim/seeds.h"
#include "core/sim/world.h"

namespace hvd::sim {
namespace {

using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using Operations = std::vector<std::shared_ptr<Completion>>;
constexpr auto kHeartbeat = 5s;
constexpr int kManyBeats = 100;

const std::vector<std::vector<int>> kHosts = {{4}, {2, 1, 2}, {1, 1, 1}, std::vector<int>(12, 1)};

WorldOptions options_of(uint64_t seed) {
  return {.ranks_per_host = kHosts[seed % kHosts.size()],
          .seed = seed,
          .shared_memory = seed / 2 % 2 == 0,
          .least_link_bytes = 16 * KiB,  // a stopped rank finds what it was told
          .heartbeat = kHeartbeat};
}

/// A job whose ranks reduce one tensor after the other.
struct Training {
  explicit Training(uint64_t seed) : Training(seed, options_of(seed)) {}
  Training(uint64_t seed, const WorldOptions& options)
      : tensors(12, std::vector<float>(20000, 1.0f)), world(options), random(seed) {}

  bool is_done() {
    return all([&](int rank) { return operations[rank]->handle.done(); });
  }
  /// All ranks are in the midst of an operation.
  void begin() {
    for (int rank = 0; rank < world.size(); ++rank) submit(rank);
    run(below(400));
  }

  int below(int limit) { return static_cast<int>(random() % static_cast<uint64_t>(limit)); }
  void submit(int rank) {
    operations[rank] =
        world.submit(rank, allreduce("t" + std::to_string(steps[rank]++), tensors[rank]));
  }
  void run(int turns) {
    world.run_until([&] { return --turns < 0; });
  }
  template <class Fact>
  bool all(Fact fact) {
    for (int rank = 0; rank < world.size(); ++rank) {
      if (std::ranges::find(stopped, rank) == stopped.end() && !fact(rank)) return false;
    }
    return true;
  }
  bool has_ended(int rank) const { return world.ending(rank).code != Code::ok; }
  const Outcome& outcome(int rank) const { return operations[rank]->handle.outcome(); }
  void stop(int rank) {
    world.stop(rank);
    stopped.push_back(rank);
  }
  /// The other ranks wait for those that have stopped.
  bool is_noticed() {
    const auto waits_or_has_ended = [&](int rank) {
      if (operations[rank]->handle.done() && !has_ended(rank)) submit(rank);
      return has_ended(rank);
    };
    const auto all_have_ended = [&] {
      int ended = 0;
      all([&](int rank) { return ended += waits_or_has_ended(rank), true; });
      return ended + static_cast<int>(stopped.size()) == world.size();
    };
    return world.run_until(all_have_ended, kManyBeats);
  }

  std::vector<std::vector<float>> tensors;  ///< must outlive the world
  std::vector<int> steps = std::vector<int>(12, 0);
  World world;
  std::mt19937_64 random;
  Operations operations = Operations(12);
  std::vector<int> stopped;
};

TEST(WorldSilence, ARankThatStopsIsNamedOnAllOthersWithinTheTimeOfTheKnob) {
  for (const uint64_t seed : seeds(100)) {
    Training job(seed);
    job.begin();
    const int stopped = job.below(job.world.size());
    job.stop(stopped);
    const TimePoint since = job.world.now();
    ASSERT_TRUE(job.is_noticed()) << "seed " << seed << " stopped " << stopped;
    EXPECT_LE(job.world.now() - since, kHeartbeat) << "seed " << seed;
    job.all([&](int rank) {
      EXPECT_EQ(job.world.ending(rank).code, Code::peer_lost);
      EXPECT_EQ(job.world.ending(rank).rank, stopped) << "seed " << seed << " rank " << rank;
      EXPECT_THAT(job.outcome(rank).text,
                  AllOf(StartsWith("allreduce \"t"),
                        HasSubstr("rank " + std::to_string(stopped) + " is lost: its process"),
                        HasSubstr("has sent nothing for 5 s: it is stopped, or its host or "
                                  "network is down; rank ")));
      return true;
    });
  }
}

TEST(WorldSilence, ARankThatStopsBeforeItsEngineHasTurnedHasNoLongerThanOthers) {
  for (const uint64_t seed : seeds(100)) {
    Training job(seed);
    const int stopped = job.below(job.world.size());
    job.stop(stopped);
    job.begin();
    const TimePoint since = job.world.now();
    ASSERT_TRUE(job.is_noticed()) << "seed " << seed << " stopped " << stopped;
    EXPECT_LE(job.world.now() - since, kHeartbeat) << "seed " << seed;
    job.all([&](int rank) {
      EXPECT_EQ(job.world.ending(rank).rank, stopped) << "seed " << seed << " rank " << rank;
      return true;
    });
  }
}

TEST(WorldSilence, ARankThatWakesUpLearnsWhoHasGivenItUp) {
  for (const uint64_t seed : seeds(100)) {
    WorldOptions options = options_of(seed);
    options.keeps_connections = seed % 3 != 0;  // then it can only learn it from what it is told
    Training job(seed, options);
    job.begin();
    const int stopped = job.below(job.world.size());
    job.stop(stopped);
    ASSERT_TRUE(job.is_noticed()) << "seed " << seed;
    job.stopped.clear();
    job.world.resume(stopped);
    if (job.operations[stopped]->handle.done()) job.submit(stopped);
    ASSERT_TRUE(job.world.run_until([&] { return job.has_ended(stopped); })) << "seed " << seed;
    EXPECT_EQ(job.world.ending(stopped).rank, stopped) << "seed " << seed;
    EXPECT_THAT(job.world.ending(stopped).text,
                AllOf(StartsWith("this process, rank " + std::to_string(stopped) +
                                 ", has lost its place in the job and cannot continue: "),
                      HasSubstr("has given it up")));
  }
}

// All others than the one that waits have nothing to do. Some of them hear of the end only from the
// rank that wakes up.
TEST(WorldSilence, ARankThatWakesUpBlamesNoOther) {
  for (const uint64_t seed : seeds(300)) {
    Training job(seed);
    Operations barriers;  // frames of the agreement that are longer than what is read at once
    for (int rank = 0; rank < job.world.size(); ++rank) {
      for (int i = 0; i < 300; ++i)
        barriers.push_back(job.world.submit(rank, barrier("b" + std::to_string(i))));
    }
    job.run(job.below(seed % 3 == 0 ? 20000 : 400));
    const int stopped = job.below(job.world.size());
    const int waiting = (stopped + 1 + job.below(job.world.size() - 1)) % job.world.size();
    job.stop(stopped);
    job.submit(waiting);
    ASSERT_TRUE(job.world.run_until([&] { return job.has_ended(waiting); }, kManyBeats));
    job.run(job.below(400));
    job.world.resume(stopped);
    ASSERT_TRUE(job.world.run_until([&] { return job.has_ended(stopped); }, kManyBeats));
    for (int rank = 0; rank < job.world.size(); ++rank) {
      if (!job.has_ended(rank)) continue;
      EXPECT_EQ(job.world.ending(rank).rank, stopped) << "seed " << seed << " rank " << rank;
    }
  }
}

TEST(WorldSilence, ARankThatStopsIsNamedToARankFarAwayThatWaitsAlone) {
  for (const uint64_t seed : seeds(100)) {
    Training job(seed);
    const int stopped = job.below(job.world.size());
    const int waiting = (stopped + 1 + job.below(job.world.size() - 1)) % job.world.size();
    job.stop(stopped);
    job.submit(waiting);
    const TimePoint since = job.world.now();
    ASSERT_TRUE(job.world.run_until([&] { return job.has_ended(waiting); }, kManyBeats))
        << "seed " << seed;
    EXPECT_LE(job.world.now() - since, kHeartbeat) << "seed " << seed;
    EXPECT_EQ(job.world.ending(waiting).rank, stopped) << "seed " << seed;
  }
}

TEST(WorldSilence, OfTwoRanksThatStopOneIsNamed) {
  for (const uint64_t seed : seeds(100)) {
    Training job(seed);
    job.begin();
    const int first = job.below(job.world.size());
    job.stop(first);
    job.stop((first + 1 + job.below(job.world.size() - 1)) % job.world.size());
    ASSERT_TRUE(job.is_noticed()) << "seed " << seed;
    job.all([&](int rank) {
      EXPECT_THAT(job.stopped, testing::Contains(job.world.ending(rank).rank)) << "seed " << seed;
      return true;
    });
  }
}

TEST(WorldSilence, ARankWhoseScriptIsBusyIsNotGivenUp) {
  for (const uint64_t seed : seeds(20)) {
    Training job(seed);
    const int busy = job.below(job.world.size());
    for (int rank = 0; rank < job.world.size(); ++rank) {
      if (rank != busy) job.submit(rank);
    }
    EXPECT_FALSE(job.world.run_until([] { return false; }, kManyBeats)) << "only the time passes";
    EXPECT_TRUE(job.all([&](int rank) { return !job.has_ended(rank); })) << "seed " << seed;
    job.submit(busy);
    EXPECT_TRUE(job.world.run_until([&] { return job.is_done(); }));
  }
}

TEST(WorldSilence, ARankForWhichNothingWaitsIsNotGivenUp) {
  for (const uint64_t seed : seeds(20)) {
    Training job(seed);
    job.stop(job.below(job.world.size()));
    EXPECT_FALSE(job.world.run_until([] { return false; }, kManyBeats));
    EXPECT_TRUE(job.all([&](int rank) { return !job.has_ended(rank); })) << "seed " << seed;
    EXPECT_EQ(job.world.now(), TimePoint{}) << "no rank has a timer";
  }
}

TEST(WorldSilence, ARankThatStopsBeforeTheJobCanEndIsNamedByTheOneThatWaitsForTheEnd) {
  for (const uint64_t seed : seeds(100)) {
    Training job(seed);
    const int stopped = 0;  // has the Root
    const int waiting = 1 + job.below(job.world.size() - 1);
    job.stop(stopped);
    job.world.shutdown(waiting);
    const TimePoint since = job.world.now();
    ASSERT_TRUE(job.world.run_until([&] { return job.has_ended(waiting); }, kManyBeats))
        << "seed " << seed;
    EXPECT_LE(job.world.now() - since, kHeartbeat) << "seed " << seed;
    EXPECT_EQ(job.world.ending(waiting).code, Code::peer_lost) << "seed " << seed;
    EXPECT_EQ(job.world.ending(waiting).rank, stopped) << "seed " << seed;
  }
}

// What it reads first, when it wakes up, ends the job in good order: the others asked for that
// before they gave it up.
TEST(WorldSilence, ARankThatWakesUpAndDrainsLearnsWhoHasGivenItUp) {
  for (const uint64_t seed : seeds(300)) {
    Training job(seed);
    const int stopped = seed % 2 == 0 ? 0 : job.below(job.world.size());  // rank 0 has the Root
    job.stop(stopped);
    job.all([&](int rank) { return job.world.shutdown(rank), true; });
    const auto others_have_ended = [&] {
      return job.all([&](int rank) { return job.has_ended(rank); });
    };
    ASSERT_TRUE(job.world.run_until(others_have_ended, kManyBeats)) << "seed " << seed;
    job.run(job.below(400));
    job.world.resume(stopped);
    ASSERT_TRUE(job.world.run_until([&] { return job.world.finished(stopped); }, kManyBeats));
    if (job.world.ending(stopped == 0 ? 1 : 0).code == Code::shut_down) continue;
    EXPECT_EQ(job.world.ending(stopped).rank, stopped)
        << "seed " << seed << ": " << job.world.ending(stopped).text;
  }
}

TEST(WorldSilence, BeatsEndWithWhatIsPending) {
  for (const uint64_t seed : seeds(20)) {
    Training job(seed);
    job.submit(0);
    EXPECT_FALSE(job.world.run_until([] { return false; }, kManyBeats));
    for (int rank = 1; rank < job.world.size(); ++rank) job.submit(rank);
    EXPECT_FALSE(job.world.run_until([] { return false; }, kManyBeats));
    const TimePoint end = job.world.now();
    EXPECT_FALSE(job.world.run_until([] { return false; }, kManyBeats));
    EXPECT_EQ(job.world.now(), end) << "seed " << seed;
    EXPECT_TRUE(job.all([&](int rank) { return !job.has_ended(rank); }));
  }
}

TEST(WorldSilence, ASuspendedJobGoesOn) {
  for (const uint64_t seed : seeds(20)) {
    Training job(seed);
    for (int rank = 1; rank < job.world.size(); ++rank) job.submit(rank);
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(job.world.run_until([] { return false; }, 1 + job.below(4)));
      job.world.suspend(std::chrono::hours(1));
    }
    job.submit(0);
    EXPECT_TRUE(job.world.run_until([&] {
      return job.all([&](int rank) { return job.operations[rank]->handle.done(); });
    })) << "seed "
        << seed;
    EXPECT_TRUE(job.all([&](int rank) { return !job.has_ended(rank); })) << "seed " << seed;
  }
}

TEST(WorldSilence, ARankThatWasStoppedShortlyGoesOnAndBlamesNoOther) {
  for (const uint64_t seed : seeds(50)) {
    Training job(seed);
    const int stopped = job.below(job.world.size());
    job.begin();
    for (int i = 0; i < 5; ++i) {
      job.world.stop(stopped);
      EXPECT_FALSE(job.world.run_until([] { return false; }, 2));
      job.world.resume(stopped);
      job.run(2000);
    }
    EXPECT_TRUE(job.world.run_until([&] { return job.is_done(); }, kManyBeats));
    EXPECT_TRUE(job.all([&](int rank) { return !job.has_ended(rank); })) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd::sim
