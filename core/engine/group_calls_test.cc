#include "core/engine/group_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

TEST(GroupCalls, ArePendingOperationsUntilTheyEnd) {
  GroupCalls calls;
  const TimePoint start{};
  const auto first = calls.add({"call 1 (allreduce) on hvd.Group([0, 2])", {0, 2}, start});
  {
    const NotedCall second(calls, {"hvd.Group([0, 1])", {0, 1}, start + 4s});
    const auto both = calls.pending(start + 5s);
    ASSERT_EQ(both.size(), 2U);
    EXPECT_EQ(both[0].name, "call 1 (allreduce) on hvd.Group([0, 2])");
    EXPECT_EQ(both[0].between, (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(both[0].age, 5s);
    EXPECT_TRUE(both[0].is_call);
    EXPECT_FALSE(both[0].is_agreed);
    EXPECT_EQ(both[1].age, 1s);
    calls.remove(first);
  }
  EXPECT_TRUE(calls.pending(start).empty());
}

TEST(GroupCalls, TellNoMoreThanTheBoardTakes) {
  GroupCalls calls;
  for (size_t i = 0; i <= kMaxPendingInState; ++i) calls.add({std::to_string(i), {}, {}});
  EXPECT_EQ(calls.pending({}).size(), kMaxPendingInState);
  EXPECT_EQ(calls.pending({}).front().name, "0");
}

}  // namespace
}  // namespace hvd
