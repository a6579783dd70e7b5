#include "core/negotiate/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/negotiate/testing.h"

namespace hvd {
namespace {

Up says(Entry entry) { return {.entries = {std::move(entry)}}; }
Up says(Entry entry, uint32_t retirements) {
  return {.seen = {{kWorldGroup, retirements}}, .entries = {std::move(entry)}};
}

/// The hub of host 1, with ranks 2 and 3, below host 0.
class HubTest : public testing::Test {
 protected:
  void define_a() { hub.from_parent(batch_of({defines(allreduce_of("a"), 0)})); }

  Hub hub{1, Topology::of({2, 2}), {}};
};

TEST_F(HubTest, ForwardsOneEntryOnceAllChildrenHaveSubmitted) {
  hub.from_child(0, says(entry_in_full(allreduce_of("a"), 2)));
  EXPECT_FALSE(hub.has_up());
  EXPECT_EQ(hub.counting(), 1u);
  hub.from_child(1, says(entry_in_full(allreduce_of("a"), 3)));
  const Up up = hub.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_EQ(up.entries[0].lowest, 2);
  EXPECT_EQ(up.entries[0].count, 2u);
  ASSERT_EQ(up.entries[0].opinions.size(), 1u);
  EXPECT_EQ(up.entries[0].opinions[0].count, 2u);
  EXPECT_EQ(hub.counting(), 0u);
}

TEST_F(HubTest, ForwardsAKnownNameByItsSlot) {
  define_a();
  hub.from_child(0, says(entry_by_slot(0, 2)));
  hub.from_child(
      1, says(entry_in_full(allreduce_of("a"), 3)));  // child 1 has not received the slot yet
  const Up up = hub.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_EQ(up.entries[0].slot, 0u);
  EXPECT_EQ(up.entries[0].count, 2u);
  EXPECT_TRUE(up.entries[0].opinions.empty());
}

TEST_F(HubTest, LetsASlotAndAChangeOfTheSameNameMeet) {
  define_a();
  hub.from_child(0, says(entry_by_slot(0, 2)));
  hub.from_child(1, says(entry_in_full(allreduce_of("a", {9}), 3)));
  const Up up = hub.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_EQ(up.entries[0].opinions.size(), 2u);
}

TEST_F(HubTest, StillUnderstandsARetiredSlot) {
  define_a();
  Item change = defines(allreduce_of("a", {9}), 1);
  change.retire = {0};
  hub.from_parent(batch_of({change}));
  hub.from_child(0, says(entry_by_slot(0, 2), 0));
  hub.from_child(1, says(entry_in_full(allreduce_of("a"), 3), 1));
  const Up up = hub.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_EQ(up.entries[0].slot, kNoSlot);
  ASSERT_EQ(up.entries[0].opinions.size(), 1u);
  EXPECT_EQ(up.entries[0].opinions[0].signature, allreduce_of("a"));
  EXPECT_EQ(up.seen, (std::vector<std::pair<GroupNumber, uint32_t>>{{0, 1}}));
}

TEST_F(HubTest, ForgetsARetiredSlotWhenAllChildrenHaveSeenIt) {
  define_a();
  Item change = defines(allreduce_of("a", {9}), 1);
  change.retire = {0};
  hub.from_parent(batch_of({change}));
  hub.from_child(0, says(entry_by_slot(1, 2), 1));
  EXPECT_EQ(hub.kept_slots(), 1u);
  hub.from_child(1, says(entry_by_slot(1, 3), 1));
  EXPECT_EQ(hub.kept_slots(), 0u);
}

TEST_F(HubTest, DiesWhenAChildArrivesTwiceInOneCount) {
  hub.from_child(0, says(entry_in_full(allreduce_of("a"), 2)));
  EXPECT_DEATH(hub.from_child(0, says(entry_in_full(allreduce_of("a"), 2))), "internal error");
}

TEST_F(HubTest, CountsAJoinedChildAsThereAndSaysSo) {
  hub.from_child(0, says(entry_in_full(allreduce_of("a"), 2)));
  hub.from_child(1, {.joined = {3}});
  const Up up = hub.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_TRUE(up.entries[0].substituted);
  EXPECT_EQ(up.joined, std::vector{3});
}

TEST_F(HubTest, TakesTheEntriesOfAMessageBeforeItsJoin) {
  hub.from_child(0, says(entry_in_full(allreduce_of("a"), 2)));
  Up both = says(entry_in_full(allreduce_of("a"), 3));
  both.joined = {3};
  hub.from_child(1, both);
  EXPECT_FALSE(hub.take_up().entries.at(0).substituted);
}

TEST_F(HubTest, PassesJoinsOnAndFiresNothing) {
  define_a();
  hub.from_child(1, {.joined = {3}});
  hub.from_child(0, {.joined = {2}});
  const Up up = hub.take_up();
  EXPECT_EQ(up.joined, (std::vector{3, 2})) << "in the order of joining";
  EXPECT_TRUE(up.entries.empty());
  hub.from_parent({.type = Verdict::Type::join_done, .rank = 2});
  hub.from_child(0, says(entry_by_slot(0, 2)));
  EXPECT_FALSE(hub.has_up()) << "no rank is joined any more";
}

TEST_F(HubTest, PassesOnThatATimeoutHasExpiredEachTime) {
  for (int i = 0; i < 2; ++i) {
    hub.from_child(0, {.expired = true});
    EXPECT_TRUE(hub.take_up().expired);
  }
}

TEST_F(HubTest, ForwardsAMessageOnceItsRanksHaveSubmitted) {
  hub.from_child(0, says(entry_in_full(message_of("within", 2, 3), 2)));
  EXPECT_FALSE(hub.has_up());
  EXPECT_EQ(hub.counting(), 1u);
  hub.from_child(1, says(entry_in_full(message_of("within", 2, 3), 3)));
  EXPECT_EQ(hub.take_up().entries.at(0).count, 2u);
  hub.from_child(1, says(entry_in_full(message_of("out", 3, 0), 3)));
  EXPECT_EQ(hub.take_up().entries, std::vector{entry_in_full(message_of("out", 3, 0), 3)});
  EXPECT_EQ(hub.counting(), 0u);
}

TEST_F(HubTest, KeepsMessagesOfOneNameBetweenOtherRanksApart) {
  Hub root{0, Topology::of({4}), {}};
  root.from_child(0, says(entry_in_full(message_of("m", 0, 1), 0)));
  root.from_child(2, says(entry_in_full(message_of("m", 2, 3), 2)));
  EXPECT_EQ(root.counting(), 2u);
  root.from_child(1, says(entry_in_full(message_of("m", 0, 1), 1)));
  EXPECT_EQ(root.counting(), 1u);
}

TEST_F(HubTest, MatchesMessagesOfOneNameInTheOrderOfSubmission) {
  const auto said = [](int rank, int64_t length) {
    return says(entry_in_full(message_of("m", 2, 3, {length}), rank));
  };
  for (const int64_t length : {1, 2, 3}) hub.from_child(0, said(2, length));
  EXPECT_EQ(hub.counting(), 3u);
  for (const int64_t length : {1, 4}) hub.from_child(1, said(3, length));
  const std::vector<Entry> entries = hub.take_up().entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].opinions.size(), 1u);
  EXPECT_EQ(entries[1].opinions.size(), 2u) << "2 and 4 disagree";
  EXPECT_EQ(hub.counting(), 1u);
  hub.from_child(1, {.joined = {3}});
  EXPECT_TRUE(hub.take_up().entries.at(0).substituted);
  EXPECT_EQ(hub.counting(), 0u);
}

TEST_F(HubTest, FailsAMessageWhoseOtherRankHasJoined) {
  hub.from_child(0, says(entry_in_full(message_of("before", 2, 3), 2)));
  EXPECT_FALSE(hub.has_up());
  hub.from_child(1, {.joined = {3}});
  EXPECT_TRUE(hub.take_up().entries.at(0).substituted);
  hub.from_child(0, says(entry_in_full(message_of("after", 3, 2), 2)));
  EXPECT_TRUE(hub.take_up().entries.at(0).substituted);
}

TEST_F(HubTest, PassesAMessageOnlyToItsRanks) {
  hub.from_parent(batch_of({defines(message_of("m", 3, 0))}));
  const std::map<int, Down> down = hub.take_down();
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down.begin()->first, 1);
}

TEST_F(HubTest, PassesAVerdictOnlyToChildrenThatItConcerns) {
  Item add = defines(add_set_of("s", {0, 3}));
  add.new_group = 1;
  hub.from_parent(batch_of({add}, kWorldGroup, 0));
  EXPECT_EQ(hub.take_down().size(), 2u);
  hub.from_parent(batch_of({defines(allreduce_of("a"))}, 1));
  const auto down = hub.take_down();
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down.begin()->first, 1);
}

TEST_F(HubTest, CountsOnlyTheMembersOfASet) {
  Item add = defines(add_set_of("s", {0, 3}));
  add.new_group = 1;
  hub.from_parent(batch_of({add}, kWorldGroup, 0));
  hub.from_child(1, says(entry_in_full(allreduce_of("a"), 3, 1)));
  EXPECT_EQ(hub.take_up().entries.size(), 1u);
}

TEST_F(HubTest, DropsEntriesOfARemovedSet) {
  Item add = defines(add_set_of("s", {2, 3}));
  add.new_group = 1;
  hub.from_parent(batch_of({add}, kWorldGroup, 0));
  hub.from_parent(batch_of({defines(remove_set_of("u", 1))}, kWorldGroup, 0));
  hub.from_child(1, says(entry_in_full(allreduce_of("a"), 3, 1)));
  EXPECT_FALSE(hub.has_up());
  EXPECT_EQ(hub.counting(), 0u);
}

TEST_F(HubTest, AddsUpTheBatchesDone) {
  hub.from_child(0, {.done = {{1, 1}}});
  hub.from_child(1, {.done = {{1, 2}, {2, 1}}});
  EXPECT_EQ(hub.take_up().done, (std::vector<std::pair<GroupNumber, uint32_t>>{{1, 3}, {2, 1}}));
}

TEST_F(HubTest, ReportsTheFirstLossUpward) {
  hub.lost_child(3, "killed");
  hub.lost_child(2, "later");
  const Up up = hub.take_up();
  EXPECT_EQ(up.lost, 3);
  EXPECT_EQ(up.lost_why, "killed");
}

TEST_F(HubTest, TellsItsChildrenAtOnceWhenItIsCutOff) {
  hub.lost_parent(0, "connection reset");
  const auto down = hub.take_down();
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down.at(0).front().type, Verdict::Type::abort);
  EXPECT_EQ(down.at(0).front().rank, 0);
  EXPECT_EQ(down.at(0).front().text, "connection reset");
}

Up answer(int rank, uint32_t query) {
  Up up{.has_report = true, .query = query};
  up.report[{.last = "x"}] = {rank};
  return up;
}

TEST_F(HubTest, MergesEqualAnswersOfItsChildren) {
  hub.from_parent({.type = Verdict::Type::query, .value = 4});
  EXPECT_TRUE(hub.collecting());
  hub.from_child(1, answer(3, 4));
  EXPECT_FALSE(hub.has_up());
  hub.from_child(0, answer(2, 4));
  const Up up = hub.take_up();
  EXPECT_EQ(up.query, 4u);
  ASSERT_EQ(up.report.size(), 1u);
  EXPECT_EQ(up.report.begin()->second, (std::vector<int32_t>{2, 3}));
  EXPECT_FALSE(hub.collecting());
}

TEST_F(HubTest, CountsAChildAsSilentAfterAWholePeriod) {
  hub.from_parent({.type = Verdict::Type::query, .value = 4});
  hub.from_child(0, answer(2, 4));
  hub.tick();
  EXPECT_FALSE(hub.has_up()) << "the query may have been asked just before";
  hub.tick();
  const Up up = hub.take_up();
  EXPECT_EQ(up.report.at({.silent = true}), std::vector<int32_t>{3});
  hub.from_child(1, answer(3, 4));
  EXPECT_FALSE(hub.has_up()) << "too late";
}

TEST_F(HubTest, ComplainsOnceUntilItIsAsked) {
  hub.from_child(0, {.stalled = true});
  EXPECT_TRUE(hub.take_up().stalled);
  hub.from_child(1, {.stalled = true});
  EXPECT_FALSE(hub.has_up());
  hub.from_parent({.type = Verdict::Type::query, .value = 1});
  hub.from_child(0, {.stalled = true});
  EXPECT_TRUE(hub.take_up().stalled);
}

TEST(HubOfHost0, OrdersThroughItsRoot) {
  Hub hub(0, Topology::of({2}), {});
  hub.from_child(0, says(entry_in_full(allreduce_of("a"), 0)));
  hub.from_child(1, says(entry_in_full(allreduce_of("a"), 1)));
  EXPECT_FALSE(hub.has_down());
  hub.turn();
  const auto down = hub.take_down();
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down.at(0), down.at(1));
  EXPECT_EQ(down.at(0).at(0).sequence, 1u);
  EXPECT_FALSE(hub.has_up());
}

TEST(HubOfHost0, LosesEverythingBehindASilentHost) {
  Hub hub(0, Topology::of({1, 2}), {});
  hub.from_child(0, {.stalled = true});
  hub.turn();
  hub.take_down();
  hub.from_child(0, answer(0, 1));
  EXPECT_FALSE(hub.root()->take_report());
  for (int i = 0; i < 3; ++i) hub.tick();  // one more than for a hub without child hosts
  const auto report = hub.root()->take_report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->at({.silent = true}), (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace hvd
