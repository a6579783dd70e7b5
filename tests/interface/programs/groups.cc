// Blocking groups: every call, element type and reduction against a reference that each rank works
// out for itself. Runs on every rank of a job of any size.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <horovod/horovod.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace {

hvd::Context* job;

/// What rank `rank` of a group has at `index`: small, so that sums and products fit every type.
template <class T>
T value_of(int rank, std::size_t index) {
  return static_cast<T>((static_cast<std::size_t>(rank) + index) % 3 + 1);
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of<T>(rank, i);
  return values;
}

template <class T>
double combine(hvd_reduce_op op, int size, std::size_t index) {
  auto result = static_cast<double>(value_of<T>(0, index));
  for (int rank = 1; rank < size; ++rank) {
    const auto value = static_cast<double>(value_of<T>(rank, index));
    if (op == HVD_MIN) result = std::min(result, value);
    if (op == HVD_MAX) result = std::max(result, value);
    if (op == HVD_PRODUCT) result *= value;
    if (op == HVD_SUM || op == HVD_AVERAGE) result += value;
  }
  return op == HVD_AVERAGE ? result / size : result;
}

template <class T>
class GroupOf : public testing::Test {};
using Numbers = testing::Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::int32_t,
                               std::int64_t>;
TYPED_TEST_SUITE(GroupOf, Numbers);

TYPED_TEST(GroupOf, NumbersReducesThemInEveryWay) {
  using T = TypeParam;
  hvd::Group group;
  for (const std::size_t count : {0, 1, 1000, 70'000}) {
    for (const hvd::Reduction how : {hvd::average, hvd::sum, hvd::min, hvd::max, hvd::product}) {
      auto data = values_of<T>(group.rank(), count);
      group.allreduce(data, how);
      for (std::size_t i = 0; i < count; ++i) {
        const double expected = combine<T>(how.op, group.size(), i);
        if (std::is_integral_v<T>)
          ASSERT_EQ(data[i], static_cast<T>(expected)) << how.op << " at " << i;
        else
          ASSERT_NEAR(data[i], expected, 1e-5) << how.op << " at " << i;
      }
    }
  }
}

TYPED_TEST(GroupOf, NumbersReducesThemInParts) {
  using T = TypeParam;
  hvd::Group group;
  const std::size_t total = 1001 * static_cast<std::size_t>(group.size()) + 1;
  const auto input = values_of<T>(group.rank(), total);
  std::vector<T> part(group.rank() == 0 ? 1002 : 1001);
  group.reducescatter(input, part, hvd::sum);
  const auto first = static_cast<std::size_t>(group.rank()) * 1001 + (group.rank() > 0);
  for (std::size_t i = 0; i < part.size(); ++i)
    ASSERT_EQ(part[i], static_cast<T>(combine<T>(HVD_SUM, group.size(), first + i)));
}

template <class T>
class GroupThatMoves : public testing::Test {};
using Movable = testing::Types<float, double, std::int8_t, std::uint8_t, std::int16_t,
                               std::uint16_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(GroupThatMoves, Movable);

TYPED_TEST(GroupThatMoves, GathersDealsAndBroadcasts) {
  using T = TypeParam;
  hvd::Group group;
  const auto size = static_cast<std::size_t>(group.size());
  for (const std::size_t count : {0, 1, 777, 50'000}) {
    const auto own = values_of<T>(group.rank(), count);
    std::vector<T> all(count * size);
    group.allgather(own, all);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], value_of<T>(static_cast<int>(i / count), i % count));

    std::vector<T> dealt(count * size);
    const auto to_all = values_of<T>(group.rank(), count * size);
    group.alltoall(to_all, dealt);
    for (std::size_t i = 0; i < dealt.size(); ++i) {
      const std::size_t sent_at = static_cast<std::size_t>(group.rank()) * count + i % count;
      ASSERT_EQ(dealt[i], value_of<T>(static_cast<int>(i / count), sent_at));
    }

    for (int root = 0; root < group.size(); ++root) {
      auto data = values_of<T>(group.rank(), count);
      group.broadcast(data, root);
      ASSERT_EQ(data, values_of<T>(root, count));
    }
  }
}

TEST(Group, TakesMaxOfBoolsForOrAndMinForAnd) {
  hvd::Group group;
  bool any[2] = {group.rank() == 0, false}, all[2] = {true, group.rank() != 0};
  group.allreduce(any, hvd::max);
  group.allreduce(all, hvd::min);
  EXPECT_TRUE(any[0]);
  EXPECT_FALSE(any[1]);
  EXPECT_TRUE(all[0]);
  EXPECT_FALSE(all[1]);
}

TEST(Group, ReducesHalfTypes) {
  hvd::Group group;
  hvd::float16 half[3] = {{0x3c00}, {0x3c00}, {0x4000}};  // 1, 1, 2
  group.allreduce(half, hvd::average);
  EXPECT_EQ(half[0], hvd::float16{0x3c00});
  EXPECT_EQ(half[2], hvd::float16{0x4000});
  hvd::bfloat16 brain[1] = {{0x3f80}};  // 1
  group.allreduce(brain, hvd::max);
  EXPECT_EQ(brain[0], hvd::bfloat16{0x3f80});
}

/// So many that each rank adds up a share.
TEST(Group, ReducesManyOfAHalfType) {
  hvd::Group group;
  std::vector<hvd::bfloat16> ones(70'000, {0x3f80}), sums(ones.size());
  group.allreduce(ones, sums, hvd::sum);
  const std::vector<std::uint16_t> whole{0, 0x3f80, 0x4000, 0x4040, 0x4080};  // 0 to 4
  const hvd::bfloat16 expected{whole[static_cast<std::size_t>(group.size())]};
  EXPECT_EQ(std::count(sums.begin(), sums.end(), expected), std::ssize(sums));
}

TEST(Group, ScalesBeforeAndAfter) {
  hvd::Group group;
  float one = 1;
  group.allreduce(std::span(&one, 1), {HVD_SUM, 3.0, 0.5});
  EXPECT_FLOAT_EQ(one, 1.5f * static_cast<float>(group.size()));
}

TEST(Group, ChecksSizesOnThisRankAlone) {
  hvd::Group group;
  std::vector<float> three(3), four(4);
  EXPECT_THROW(group.allreduce(three, four, hvd::sum), hvd::Error);
  try {
    group.reducescatter(three, four, hvd::sum);
    FAIL();
  } catch (const hvd::Error& error) {
    EXPECT_EQ(error.status(), HVD_INVALID_ARGUMENT);
  }
  group.barrier();  // and is of use as before
}

/// The ranks 0 to n - 1 but one, for each one: they overlap in every way.
TEST(Group, MayOverlapWithOthers) {
  const int ranks = job->size();
  std::vector<std::unique_ptr<hvd::Group>> groups;
  std::vector<int> sums;
  for (int absent = 0; absent < ranks && ranks > 1; ++absent) {
    std::vector<std::int32_t> members;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != absent) members.push_back(rank);
    if (absent == job->rank()) continue;
    groups.push_back(std::make_unique<hvd::Group>(members));
    sums.push_back(ranks * (ranks - 1) / 2 - absent);
  }
  for (int turn = 0; turn < 50; ++turn) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      int sum = job->rank();
      groups[i]->allreduce(std::span(&sum, 1), hvd::sum);
      ASSERT_EQ(sum, sums[i]);
    }
  }
}

TEST(Group, WorksWhileNegotiatedOperationsRun) {
  hvd::Group group;
  std::vector<double> large(2'000'000, 1.0);
  std::thread negotiated([&] {
    for (int turn = 0; turn < 10; ++turn) {
      std::ranges::fill(large, 1.0);
      job->allreduce("large", large, hvd::sum);
    }
  });
  for (int turn = 0; turn < 500; ++turn) {
    int sum = turn;
    group.allreduce(std::span(&sum, 1), hvd::sum);
    EXPECT_EQ(sum, turn * group.size());
  }
  negotiated.join();
  EXPECT_EQ(large.back(), group.size());
}

/// Calls of this size may go through shared memory, or straight from tensor to tensor; both are
/// tried in turns of nine.
TEST(Group, GivesTheSameWhicheverWayItGoes) {
  hvd::Group group;
  const auto size = static_cast<std::size_t>(group.size());
  constexpr std::size_t kPart = 20'000;
  std::vector<int> own(kPart), all(kPart * size), dealt(kPart * size), part(kPart);
  for (int turn = 0; turn < 30; ++turn) {
    std::vector<int> to_all(kPart * size);
    for (std::size_t i = 0; i < to_all.size(); ++i)
      to_all[i] = turn + group.rank() * 1000 + static_cast<int>(i / kPart);
    std::ranges::fill(own, turn + group.rank());
    group.allgather(own, all);
    group.alltoall(to_all, dealt);
    group.reducescatter(to_all, part, hvd::sum);
    int sum = 0;  // of what all have for this rank
    for (int rank = 0; rank < group.size(); ++rank) {
      const std::size_t first = static_cast<std::size_t>(rank) * kPart;
      ASSERT_EQ(all[first], turn + rank);
      ASSERT_EQ(all[first + kPart - 1], turn + rank);
      ASSERT_EQ(dealt[first], turn + rank * 1000 + group.rank());
      ASSERT_EQ(dealt[first + kPart - 1], dealt[first]);
      sum += dealt[first];
    }
    ASSERT_EQ(part, std::vector<int>(kPart, sum));
    group.allreduce(to_all, hvd::max);
    ASSERT_EQ(to_all[0], turn + (group.size() - 1) * 1000);
    ASSERT_EQ(to_all.back(), to_all[0] + group.size() - 1);
    const int root = turn % group.size();
    group.broadcast(own, root);
    ASSERT_EQ(own, std::vector<int>(kPart, turn + root));
  }
}

TEST(Group, IsOfNoUseInAForkedChildAndOfUseAfterwards) {
  auto group = std::make_unique<hvd::Group>();
  const pid_t child = fork();
  if (child == 0) {
    try {
      group->barrier();
      _exit(1);
    } catch (const hvd::Error& error) {
      group.reset();
      _exit(error.status() == HVD_NOT_INITIALIZED ? 0 : 2);
    }
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  group->barrier();
}

TEST(Group, IsMadeAgainAndAgain) {
  for (int turn = 0; turn < 20; ++turn) {
    hvd::Group group;
    group.barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  hvd::Context context;
  job = &context;
  const int result = RUN_ALL_TESTS();
  context.barrier("end");
  return result;
}
