#include "core/negotiate/root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/negotiate/testing.h"

namespace hvd {
namespace {

using Type = Verdict::Type;

std::vector<Type> types(const Down& down) {
  std::vector<Type> list;
  for (const Verdict& verdict : down) list.push_back(verdict.type);
  return list;
}

/// With a threshold of 1000 bytes and a window of 2.
class RootTest : public testing::Test {
 protected:
  void complete(const std::string& name, int64_t bytes = 400, GroupNumber group = kWorldGroup) {
    root.complete(entry_in_full(allreduce_of(name, {bytes / 4}), 0, group));
  }
  GroupNumber add_set(const std::string& name, std::vector<int32_t> members) {
    root.complete(entry_in_full(add_set_of(name, std::move(members)), 0));
    const Down down = root.turn();
    EXPECT_EQ(down.size(), 1u);
    return down.at(0).items.at(0).new_group;
  }

  Root root{{.fusion_bytes = 1000, .window = 2}};
};

TEST_F(RootTest, SaysNothingWhenNothingHappens) { EXPECT_TRUE(root.turn().empty()); }

TEST_F(RootTest, OrdersAtOnceWhenNothingIsUnderWay) {
  complete("a");
  complete("b");
  const Down down = root.turn();
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0].items.size(), 2u);
  EXPECT_EQ(down[0].sequence, 1u);
}

TEST_F(RootTest, HoldsAPartialBatchWhileSomethingIsUnderWay) {
  complete("a");
  root.turn();
  complete("b");
  EXPECT_TRUE(root.turn().empty());
  complete("c");
  EXPECT_TRUE(root.turn().empty());
  root.done(kWorldGroup, 1);
  const Down down = root.turn();
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0].items.size(), 2u);
}

TEST_F(RootTest, LetsFullBatchesGoUpToTheWindow) {
  complete("a");
  root.turn();
  complete("b", 1000);
  complete("c", 1000);
  EXPECT_EQ(root.turn().size(), 1u);
  EXPECT_TRUE(root.turn().empty());
  root.done(kWorldGroup, 1);
  EXPECT_EQ(root.turn().size(), 1u);
}

TEST_F(RootTest, AsksAtOnceWhenATimeoutHasExpired) {
  root.stalled();
  EXPECT_EQ(types(root.turn()), std::vector{Type::query});
  root.expired();
  EXPECT_TRUE(root.turn().empty()) << "the last query may have been answered too early";
  root.reported({});
  EXPECT_EQ(types(root.turn()), std::vector{Type::query}) << "in the same period";
  root.reported({});
  EXPECT_TRUE(root.turn().empty());
}

TEST_F(RootTest, OrdersAMessageAtOnceWhateverIsUnderWay) {
  complete("a");
  root.turn();
  complete("b");
  root.complete(entry_in_full(message_of("m", 1, 0), 0));
  root.complete(entry_in_full(message_of("n", 1, 0), 0));
  const Down down = root.turn();
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[0].items.at(0), defines(message_of("m", 1, 0)));
  EXPECT_EQ(down[1].sequence, 3u);
  root.done(kWorldGroup, 1);
  EXPECT_EQ(root.turn().size(), 1u) << "messages are not paced";
}

TEST_F(RootTest, RunsWhatIsLargerThanTheThreshold) {
  complete("a", 100'000);
  EXPECT_EQ(root.turn().size(), 1u);
}

TEST_F(RootTest, SpellsARepeatedNameByItsSlot) {
  for (int i = 0; i < 3; ++i) {
    complete("a");
    const Down down = root.turn();
    ASSERT_EQ(down.size(), 1u);
    EXPECT_EQ(down[0].items[0].define, i < 2);
    EXPECT_EQ(down[0].items[0].slot, i == 0 ? kNoSlot : 0);
    root.done(kWorldGroup, 1);
  }
}

TEST_F(RootTest, TellsAMismatchAtOnce) {
  complete("a");
  root.turn();
  Entry entry = entry_in_full(allreduce_of("b"), 0);
  entry.opinions.push_back({.signature = allreduce_of("b", {5}), .rank = 1, .count = 1});
  root.complete(entry);
  const Down down = root.turn();
  ASSERT_EQ(types(down), std::vector{Type::fault});
  EXPECT_EQ(down[0].opinions.size(), 2u);
  EXPECT_FALSE(down[0].joined_fault);
  EXPECT_EQ(down[0].items[0].signature->name, hash_name("b"));
}

TEST_F(RootTest, RefusesAllButAllreduceForAJoinedRank) {
  Entry barrier = entry_in_full(barrier_of("b"), 0);
  barrier.substituted = true;
  root.complete(barrier);
  Entry sum = entry_in_full(allreduce_of("a"), 0);
  sum.substituted = true;
  root.complete(sum);
  const Down down = root.turn();
  ASSERT_EQ(types(down), (std::vector{Type::fault, Type::batch}));
  EXPECT_TRUE(down[0].joined_fault);
}

TEST_F(RootTest, EndsAJoinBehindWhatIsReady) {
  complete("a");
  root.turn();
  complete("b");
  root.all_joined(3);
  EXPECT_TRUE(root.turn().empty());
  root.done(kWorldGroup, 1);
  const Down down = root.turn();
  ASSERT_EQ(types(down), (std::vector{Type::batch, Type::join_done}));
  EXPECT_EQ(down[1].rank, 3);
}

TEST_F(RootTest, NumbersSetsUpwardAndNeverAgain) {
  const GroupNumber first = add_set("s", {0, 1});
  EXPECT_EQ(root.process_sets().at(first), (std::vector<int32_t>{0, 1}));
  root.complete(entry_in_full(remove_set_of("u", first), 0));
  root.turn();
  EXPECT_TRUE(root.process_sets().empty());
  EXPECT_GT(add_set("t", {0}), first);
}

TEST_F(RootTest, CountsBatchesOverAllGroupsButNotChangesOfGroups) {
  const GroupNumber set = add_set("s", {0, 1});
  complete("a");
  complete("a", 400, set);
  const Down down = root.turn();
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[0].sequence, 1u);
  EXPECT_EQ(down[1].sequence, 2u);
}

TEST_F(RootTest, PacesEachGroupByItself) {
  const GroupNumber set = add_set("s", {0, 1});
  complete("a");
  root.turn();
  complete("b", 400, set);
  EXPECT_EQ(root.turn().size(), 1u);
}

// Regardless of pacing: all members submitted it before they removed the set.
TEST_F(RootTest, RunsWhatIsReadyInASetBeforeItRemovesIt) {
  const GroupNumber set = add_set("s", {0, 1});
  complete("a", 400, set);
  root.turn();
  complete("b", 400, set);
  EXPECT_TRUE(root.turn().empty());  // "a" is outstanding
  complete("c", 400, set);
  root.complete(entry_in_full(remove_set_of("u", set), 0));
  const Down down = root.turn();
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[0].group, set);
  EXPECT_EQ(down[0].items.size(), 2u);
  EXPECT_EQ(down[1].items[0].signature->operation.kind, OperationKind::remove_process_set);
}

TEST_F(RootTest, OrdersNothingForARemovedSet) {
  const GroupNumber set = add_set("s", {0, 1});
  root.complete(entry_in_full(remove_set_of("u", set), 0));
  root.turn();
  complete("b", 400, set);
  root.done(set, 1);
  EXPECT_TRUE(root.turn().empty());
}

TEST_F(RootTest, AppliesANewThresholdToWhatItCutsAfterIt) {
  root.set_fusion_bytes(0);
  complete("a");
  complete("b");
  const Down down = root.turn();
  ASSERT_EQ(types(down), (std::vector{Type::knobs, Type::batch, Type::batch}));
  EXPECT_EQ(down[0].value, 0u);
}

TEST_F(RootTest, OrdersNothingAfterTheEnd) {
  complete("a");
  root.shutdown(2, "a stall");
  root.abort(1, "later");
  complete("b");
  const Down down = root.turn();
  ASSERT_EQ(types(down), std::vector{Type::shut_down});
  EXPECT_EQ(down[0].rank, 2);
  EXPECT_EQ(down[0].text, "a stall");
  EXPECT_TRUE(root.turn().empty());
}

TEST_F(RootTest, CutsAnEndlessText) {
  root.shutdown(0, std::string(kMaxTextBytes + 5, 'x'));
  EXPECT_EQ(root.turn().at(0).text.size(), kMaxTextBytes);
}

TEST_F(RootTest, AsksOnceAPeriod) {
  root.stalled();
  EXPECT_EQ(types(root.turn()), std::vector{Type::query});
  root.stalled();
  root.reported({});
  EXPECT_TRUE(root.take_report());
  EXPECT_FALSE(root.take_report());
  EXPECT_TRUE(root.turn().empty());
  EXPECT_TRUE(root.needs_tick());
  root.tick();
  EXPECT_EQ(types(root.turn()), std::vector{Type::query}) << "somebody has complained since";
  root.reported({});
  root.tick();
  EXPECT_TRUE(root.turn().empty());
  EXPECT_FALSE(root.needs_tick());
}

TEST_F(RootTest, LeavesOutWhatHasBecomeCompleteSinceTheQuery) {
  root.expired();
  root.turn();
  complete("late");
  root.complete(entry_in_full(message_of("m", 0, 1), 0));
  StallReport report;
  report[{.names = {{.name = "late", .expired_ms = 500}, {.name = "lost", .expired_ms = 500}}}] = {
      0};
  report[{.names = {{.name = "m", .between = {0, 1}}, {.name = "m", .between = {1, 2}}}}] = {1};
  root.reported(report);
  StallReport rest;
  rest[{.names = {{.name = "lost", .expired_ms = 500}}}] = {0};
  rest[{.names = {{.name = "m", .between = {1, 2}}}}] = {1};
  EXPECT_EQ(root.take_report(), rest);
  root.expired();
  root.turn();
  root.reported(report);
  EXPECT_EQ(root.take_report(), report) << "submitted again since";
}

TEST_F(RootTest, AsksAgainIfTooMuchHasBecomeCompleteSinceTheQuery) {
  root.expired();
  root.turn();
  for (int i = 0; i < 1 << 16; ++i) complete(std::to_string(i));
  root.turn();
  root.reported({});
  EXPECT_FALSE(root.take_report());
  EXPECT_THAT(types(root.turn()), testing::Contains(Type::query));
}

TEST_F(RootTest, DoesNotAskAgainBeforeTheAnswer) {
  root.stalled();
  root.turn();
  root.tick();
  root.stalled();
  EXPECT_TRUE(root.turn().empty());
}

}  // namespace
}  // namespace hvd
