// Groups of ranks on one machine that communicate over TCP: choice of the algorithm, watched
// sockets, and the rank that is named after a loss.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <latch>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/blocking/blocking_group_testing.h"
#include "core/blocking/phased_link_call.h"
#include "core/transport/epoll_waiter.h"

namespace hvd::test {
namespace {

Knobs over_tcp() {
  Knobs knobs;
  knobs.transport = TransportChoice::tcp;
  return knobs;
}

Batch not_as_a_batch() { throw std::logic_error("this goes in phases"); }

/// Broadcasts that take more than one exchange.
TEST(BlockingGroupOverTcp, SumsAndBroadcastsInPhases) {
  for (const int ranks : {3, 5}) {
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    on_ranks(ranks, over_tcp(), [&](Member& member, int rank) {
      BlockingGroup group = member.group(all, "all");
      std::vector<int64_t> one{rank};
      group.run(eager_sum_of(one), not_as_a_batch);
      EXPECT_EQ(one[0], ranks * (ranks - 1) / 2);
      for (const size_t bytes : {8 * KiB, PhasedLinkCall::kMostBytes})
        for (int root = 0; root < ranks; ++root) {
          std::vector<int64_t> values(bytes / sizeof(int64_t), rank);
          TensorTask task = eager_sum_of(values);
          task.operation.kind = OperationKind::broadcast;
          task.operation.root = root;
          group.run(task, not_as_a_batch);
          EXPECT_EQ(values, std::vector<int64_t>(values.size(), root));
        }
      group.leave();
    });
  }
}

/// A sum with a prescale, and a sum whose algorithm moves parts.
TEST(BlockingGroupOverTcp, TakesTheLongWayWhereItMust) {
  Knobs knobs = over_tcp();
  knobs.deterministic = true;
  on_ranks(3, knobs, [](Member& member, int) {
    BlockingGroup group = member.group({0, 1, 2}, "all");
    std::vector<int64_t> one{1};
    group.run(eager_sum_of(one), not_as_a_batch);
    for (const bool scaled : {false, true}) {
      std::vector<int64_t> values(scaled ? 1 : 100 * KiB / sizeof(int64_t), 1);
      TensorTask task = eager_sum_of(values);
      ASSERT_LE(task.bytes(), group.task_limits().reduced);
      if (scaled) task.operation.prescale = 2.0;
      bool as_a_batch = false;
      group.run(task, [&] {
        as_a_batch = true;
        return sum_of(values);
      });
      EXPECT_TRUE(as_a_batch);
      EXPECT_EQ(values, std::vector<int64_t>(values.size(), 3));
    }
    group.leave();
  });
}

/// The descriptors in an epoll, including the doorbell.
size_t watched_by(const Waiter& waiter) {
  const int epoll = dynamic_cast<const EpollWaiter&>(waiter).fd();
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(epoll));
  size_t count = 0;
  for (std::string line; std::getline(info, line);) count += line.starts_with("tfd:") ? 1 : 0;
  return count;
}

/// Rank 1 enters the first and the last call only when rank 0 watches its socket and sleeps.
/// The calls between them do not sleep; there are enough that rank 0 stops watching sockets.
TEST(BlockingGroupOverTcp, WatchesItsSocketsOnlyWhileItSleepsNowAndThen) {
  std::atomic<const Waiter*> of_rank_0 = nullptr;
  std::atomic<size_t> without_sockets = 0;
  std::latch known(2);
  on_ranks(2, over_tcp(), [&](Member& member, int rank) {
    Wiring wiring = member.wiring({0, 1}, "both");
    if (rank == 0) of_rank_0 = wiring.waiter.get();
    BlockingGroup group(std::move(wiring), {0, 1}, Knobs(), false);
    if (rank == 0) without_sockets = watched_by(*of_rank_0);
    known.arrive_and_wait();
    const auto is_watched = [&] { return watched_by(*of_rank_0) > without_sockets; };
    const auto sum = [&](int64_t mine) {
      std::vector<int64_t> value{mine};
      group.run(sum_of(value));
      return value[0];
    };
    for (int turn = 0; turn < 2; ++turn) {
      while (rank == 1 && !is_watched()) std::this_thread::yield();
      EXPECT_EQ(sum(rank + 1), 3);
      if (rank == 0) {
        EXPECT_EQ(watched_by(*of_rank_0), without_sockets + 1);
      }
      int64_t goes_on = 1;
      for (int call = 0; call < 100'000 && goes_on != 0; ++call)
        goes_on = sum(rank == 0 && is_watched() ? 1 : 0);
      EXPECT_EQ(goes_on, 0);
    }
    group.leave();
  });
}

/// A peer of a group over TCP that leaves without a goodbye. In shared memory only the end of a
/// process reveals it, see tests/interface.
TEST(BlockingGroupOverTcp, NamesTheRankThatWentAndIsOfNoUseAfterwards) {
  const auto stay = [&](Member& member) {
    BlockingGroup group = member.group({1, 2}, "two");
    group.barrier();
    for (int turn = 0; turn < 2; ++turn) {
      try {
        group.barrier();
        ADD_FAILURE() << "a barrier without the other rank";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost);
        if (turn == 0) {
          EXPECT_EQ(error.rank(), 2) << error.what();
        }
      }
    }
  };
  on_ranks(3, over_tcp(), [&](Member& member, int rank) {
    if (rank == 1) stay(member);
    if (rank == 2) member.group({1, 2}, "two").barrier();  // then rank 2 leaves
  });
}

/// The error of the group.
std::string expect_the_loss_of_rank_2(BlockingGroup& group, size_t count) {
  std::vector<int64_t> values(count);
  try {
    group.run(sum_of(values));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 2) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "a sum without rank 2";
  return "";
}

/// A rank that checks late cannot see which of two closed connections was closed first.
TEST(BlockingGroupOverTcp, OneThatComesLateNamesTheRankThatWentFirst) {
  for (const size_t count : {size_t{1}, size_t{300'000}}) {
    std::latch connected(3), second_has_gone(1);
    on_ranks(3, over_tcp(), [&](Member& member, int rank) {
      {
        BlockingGroup group = member.group({0, 1, 2}, "all");
        connected.arrive_and_wait();
        if (rank == 2) return;  // leaves
        if (rank == 0) second_has_gone.wait();
        expect_the_loss_of_rank_2(group, count);
        group.leave();
      }
      if (rank == 1) second_has_gone.count_down();
    });
  }
}

/// A host that has failed does not answer, and ranks detect that at different times.
TEST(BlockingGroupOverTcp, OneThatIsToldOfALossNeedNotSeeItItself) {
  std::latch told(1), done(1);
  on_ranks(3, over_tcp(), [&](Member& member, int rank) {
    if (rank == 0) {
      BlockingGroup group = member.group({0, 1, 2}, "all");
      told.wait();
      EXPECT_EQ(expect_the_loss_of_rank_2(group, 1), "rank 2 is lost, as reported by rank 1");
      done.count_down();
      return group.leave();
    }
    const Wiring wiring = member.wiring({0, 1, 2}, "all");
    if (rank == 1) {
      wiring.mesh->give_up(2);
      told.count_down();
    }
    done.wait();
  });
}

}  // namespace
}  // namespace hvd::test
