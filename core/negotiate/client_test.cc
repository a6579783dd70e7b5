#include "core/negotiate/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/negotiate/testing.h"

namespace hvd {
namespace {

using testing::HasSubstr;

constexpr GroupNumber kSet = 1;

/// Rank 1 of three.
class ClientTest : public testing::Test {
 protected:
  Submitted submit(const std::string& name, uint64_t tag = 7) {
    return client.submit(kWorldGroup, name, allreduce_of(name), tag);
  }
  Action only_action() {
    std::vector<Action> actions = client.take_actions();
    EXPECT_EQ(actions.size(), 1u);
    return actions.empty() ? Action{} : actions.front();
  }
  /// Submits "a" and completes it, so that it has slot 0.
  void define_a() {
    submit("a");
    client.from_parent(batch_of({defines(allreduce_of("a"), 0)}));
    client.batch_done(kWorldGroup, only_action().bound);
    client.take_up();
  }
  void add_set(std::vector<int32_t> members) {
    const Signature add = add_set_of("set", std::move(members));
    client.submit(kWorldGroup, "set", add, 1);
    Item item = defines(add);
    item.new_group = kSet;
    client.from_parent(batch_of({item}, kWorldGroup, 0));
    client.take_up();
  }

  Client client{1, Topology::of({3}), {}};
};

TEST_F(ClientTest, AnnouncesANewNameInFull) {
  EXPECT_EQ(submit("a"), Submitted::accepted);
  const Up up = client.take_up();
  ASSERT_EQ(up.entries.size(), 1u);
  EXPECT_EQ(up.entries[0], entry_in_full(allreduce_of("a"), 1));
  EXPECT_FALSE(client.has_up());
}

TEST_F(ClientTest, AnnouncesAKnownNameByItsSlot) {
  define_a();
  submit("a");
  EXPECT_EQ(client.take_up().entries, std::vector{entry_by_slot(0, 1)});
}

TEST_F(ClientTest, AnnouncesAChangeInFull) {
  define_a();
  client.submit(kWorldGroup, "a", allreduce_of("a", {9}), 1);
  EXPECT_EQ(client.take_up().entries, std::vector{entry_in_full(allreduce_of("a", {9}), 1)});
}

TEST_F(ClientTest, SaysHowManyRetirementsItHasSeen) {
  define_a();
  submit("b");
  Item item = defines(allreduce_of("b"), 1);
  item.retire = {0};
  client.from_parent(batch_of({item}));
  submit("c");
  EXPECT_EQ(client.take_up().seen, (std::vector<std::pair<GroupNumber, uint32_t>>{{0, 1}}));
}

TEST_F(ClientTest, RefusesANameUntilItsBatchHasRun) {
  submit("a");
  EXPECT_EQ(submit("a"), Submitted::duplicate_name);
  client.from_parent(batch_of({defines(allreduce_of("a"))}));
  EXPECT_EQ(submit("a"), Submitted::duplicate_name);
  client.batch_done(kWorldGroup, only_action().bound);
  EXPECT_EQ(submit("a"), Submitted::accepted);
}

TEST_F(ClientTest, RunsABatchWithItsTagsAndSequence) {
  submit("a", 5);
  submit("b", 6);
  client.from_parent(
      batch_of({defines(allreduce_of("b")), defines(allreduce_of("a"))}, kWorldGroup, 42));
  const Action run = only_action();
  EXPECT_EQ(run.type, Action::Type::run);
  EXPECT_EQ(run.sequence, 42u);
  ASSERT_EQ(run.bound.size(), 2u);
  EXPECT_EQ(run.bound[0].tag, 6u);
  EXPECT_EQ(run.bound[1].tag, 5u);
  EXPECT_TRUE(run.bound[0].mine);
  EXPECT_EQ(client.waiting(), 0u);
}

TEST_F(ClientTest, StandsInForWhatItHasNotSubmittedOnceJoined) {
  EXPECT_TRUE(client.join());
  EXPECT_FALSE(client.join());
  EXPECT_EQ(client.take_up().joined.size(), 1u);
  EXPECT_EQ(submit("a"), Submitted::joined);
  client.from_parent(batch_of({defines(allreduce_of("a"))}));
  const Action run = only_action();
  EXPECT_FALSE(run.bound[0].mine);
  EXPECT_EQ(run.bound[0].signature, allreduce_of("a"));
  client.from_parent({.type = Verdict::Type::join_done, .rank = 2});
  EXPECT_EQ(only_action().rank, 2);
  EXPECT_EQ(submit("a"), Submitted::accepted);
}

TEST_F(ClientTest, DiesOfABatchThatItHasNotSubmitted) {
  EXPECT_DEATH(client.from_parent(batch_of({defines(allreduce_of("a"))})), "internal error");
}

TEST_F(ClientTest, DiesOfABatchByAnotherAgreement) {
  submit("a");
  EXPECT_DEATH(client.from_parent(batch_of({defines(allreduce_of("a", {5}))})), "internal error");
}

TEST_F(ClientTest, FailsAMismatchAndFreesTheName) {
  submit("a", 5);
  Verdict fault{.type = Verdict::Type::fault};
  fault.items = {defines(allreduce_of("a"))};
  fault.opinions = {{.signature = allreduce_of("a"), .rank = 0, .count = 1},
                    {.signature = allreduce_of("a", {2}), .rank = 1, .count = 1}};
  client.from_parent(fault);
  const Action failed = only_action();
  EXPECT_EQ(failed.type, Action::Type::fail);
  EXPECT_EQ(failed.tag, 5u);
  EXPECT_THAT(failed.text, HasSubstr("allreduce \"a\": ranks disagree about the shape"));
  EXPECT_EQ(submit("a"), Submitted::accepted);
}

TEST_F(ClientTest, KeepsAMessageWhenOneOfItsNameWithAnotherRankFails) {
  client.submit(kWorldGroup, "m", message_of("m", 1, 2), 7);
  client.join();
  Verdict fault{.type = Verdict::Type::fault, .joined_fault = true};
  fault.items = {defines(message_of("m", 0, 1))};
  fault.opinions = {{.signature = message_of("m", 0, 1), .rank = 0, .count = 1}};
  client.from_parent(fault);
  EXPECT_TRUE(client.take_actions().empty());
  EXPECT_EQ(client.waiting(), 1u);
}

TEST_F(ClientTest, KeepsAMessageWhenAnOperationOfItsNameRunsOrFails) {
  client.submit(kWorldGroup, "m", message_of("m", 1, 2), 7);
  client.join();
  client.from_parent(batch_of({defines(allreduce_of("m"))}, kWorldGroup, 0));
  const Action run = only_action();
  EXPECT_EQ(run.type, Action::Type::run);
  EXPECT_FALSE(run.bound.front().mine);
  Verdict fault{.type = Verdict::Type::fault, .joined_fault = true};
  fault.items = {defines(allreduce_of("m"))};
  fault.opinions = {{.signature = allreduce_of("m"), .rank = 0, .count = 1}};
  client.from_parent(fault);
  EXPECT_TRUE(client.take_actions().empty());
  EXPECT_EQ(client.waiting(), 1u);
}

TEST_F(ClientTest, MatchesMessagesOfOneNameInTheOrderOfSubmission) {
  const Signature message = message_of("m", 1, 2);
  const std::vector<uint64_t> tags{5, 6, 7};
  for (const uint64_t tag : tags)
    EXPECT_EQ(client.submit(kWorldGroup, "m", message, tag), Submitted::accepted);
  EXPECT_EQ(client.take_up().entries.size(), 3u);
  Verdict fault{.type = Verdict::Type::fault};
  fault.items = {defines(message)};
  fault.opinions = {{.signature = message, .rank = 1, .count = 1},
                    {.signature = message_of("m", 1, 2, {5}), .rank = 2, .count = 1}};
  client.from_parent(batch_of({defines(message)}));
  client.from_parent(fault);
  client.from_parent(batch_of({defines(message)}));
  const std::vector<Action> actions = client.take_actions();
  ASSERT_EQ(actions.size(), 3u);
  EXPECT_EQ(actions[0].bound.at(0).tag, 5u);
  EXPECT_EQ(actions[1].tag, 6u);
  EXPECT_EQ(actions[2].bound.at(0).tag, 7u);
  EXPECT_EQ(client.waiting(), 0u);
}

TEST_F(ClientTest, FreesTheNameOfAnOperationOnlyWhenTheOperationHasEnded) {
  submit("m");
  client.submit(kWorldGroup, "m", message_of("m", 1, 2), 7);
  client.from_parent(batch_of({defines(message_of("m", 1, 2))}));
  client.free_names(kWorldGroup, only_action().bound);
  EXPECT_EQ(submit("m"), Submitted::duplicate_name);
}

TEST_F(ClientTest, TellsOfMessagesOfOneNameOnceWithTheAgeOfTheOldest) {
  const Signature message = message_of("m", 1, 2);
  client.submit(kWorldGroup, "m", message, 5);
  client.tick();
  client.submit(kWorldGroup, "m", message, 6);
  client.tick();
  EXPECT_TRUE(client.take_up().stalled);
  client.expire(kWorldGroup, message, std::chrono::milliseconds(9));
  client.from_parent({.type = Verdict::Type::query, .value = 1});
  EXPECT_EQ(client.take_up().report.begin()->first.names,
            (std::vector<WaitingName>{{0, "m", 2, {1, 2}, 9}}));
}

TEST_F(ClientTest, KnowsASetOnlyFromItsPlaceInTheStreamOn) {
  EXPECT_EQ(client.submit(kSet, "a", allreduce_of("a"), 1), Submitted::not_a_member);
  add_set({0, 1});
  const Action added = only_action();
  EXPECT_EQ(added.type, Action::Type::set_added);
  EXPECT_EQ(added.group, kSet);
  EXPECT_TRUE(client.is_member(kSet));
  EXPECT_EQ(client.submit(kSet, "a", allreduce_of("a"), 1), Submitted::accepted);
  EXPECT_EQ(client.submit(kWorldGroup, "a", allreduce_of("a"), 2), Submitted::accepted);
}

TEST_F(ClientTest, IsNotAMemberOfASetOfOthers) {
  add_set({0, 2});
  EXPECT_EQ(only_action().type, Action::Type::set_added);
  EXPECT_FALSE(client.is_member(kSet));
}

TEST_F(ClientTest, FailsWhatIsPendingInARemovedSet) {
  add_set({0, 1});
  client.take_actions();
  client.submit(kSet, "a", allreduce_of("a"), 5);
  client.submit(kWorldGroup, "unset", remove_set_of("unset", kSet), 6);
  client.from_parent(batch_of({defines(remove_set_of("unset", kSet))}, kWorldGroup, 0));
  const std::vector<Action> actions = client.take_actions();
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].type, Action::Type::fail);
  EXPECT_EQ(actions[0].tag, 5u);
  EXPECT_THAT(actions[0].text, HasSubstr("the process set was removed"));
  EXPECT_EQ(actions[1].type, Action::Type::set_removed);
  EXPECT_EQ(actions[1].tag, 6u);
  EXPECT_FALSE(client.is_member(kSet));
}

TEST_F(ClientTest, TellsTheRootOfBatchesOfASetWhoseLowestRankItIs) {
  add_set({1, 2});
  client.take_actions();
  for (int i = 0; i < 2; ++i) {
    client.submit(kSet, "a", allreduce_of("a"), 1);
    client.from_parent(batch_of({defines(allreduce_of("a"))}, kSet));
    client.batch_done(kSet, only_action().bound);
  }
  EXPECT_EQ(client.take_up().done, (std::vector<std::pair<GroupNumber, uint32_t>>{{kSet, 2}}));
}

TEST_F(ClientTest, LeavesThatToRank0InASetWithIt) {
  add_set({0, 1});
  client.take_actions();
  client.submit(kSet, "a", allreduce_of("a"), 1);
  client.take_up();
  client.from_parent(batch_of({defines(allreduce_of("a"))}, kSet));
  client.batch_done(kSet, only_action().bound);
  EXPECT_FALSE(client.has_up());
}

TEST_F(ClientTest, EndsOnceAndSaysWhoIsLostAndWhatWasSeen) {
  submit("a");
  client.from_parent({.type = Verdict::Type::abort, .rank = 2, .text = "its process ended"});
  client.from_parent({.type = Verdict::Type::abort, .rank = 0, .text = "later"});
  client.parent_lost(0, "later");
  const Action ended = only_action();
  EXPECT_EQ(ended.type, Action::Type::ended);
  EXPECT_TRUE(ended.lost);
  EXPECT_EQ(ended.rank, 2);
  EXPECT_EQ(ended.text, "its process ended");
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(submit("b"), Submitted::ended);
  EXPECT_FALSE(client.join());
}

TEST_F(ClientTest, TakesPartUntilTheShutdownIsAgreed) {
  client.shutdown();
  EXPECT_TRUE(client.take_up().shutdown);
  EXPECT_EQ(submit("a"), Submitted::accepted);
  client.from_parent({.type = Verdict::Type::shut_down, .rank = 1});
  const Action ended = only_action();
  EXPECT_FALSE(ended.lost);
  EXPECT_EQ(ended.rank, 1);
  EXPECT_EQ(ended.text, "");
}

TEST_F(ClientTest, EndsWithTheTextOfTheRoot) {
  client.from_parent({.type = Verdict::Type::shut_down, .rank = 0, .text = "a stall"});
  EXPECT_EQ(only_action().text, "a stall");
}

TEST_F(ClientTest, ComplainsWhenARequestHasWaitedForAWholePeriod) {
  submit("a");
  client.take_up();
  client.tick();
  EXPECT_FALSE(client.has_up());
  client.tick();
  EXPECT_TRUE(client.take_up().stalled);
  client.tick();
  EXPECT_TRUE(client.take_up().stalled) << "every period again";
}

TEST_F(ClientTest, TellsThatATimeoutHasExpired) {
  submit("a");
  client.take_up();
  client.expire(kWorldGroup, allreduce_of("unknown"), std::chrono::seconds(1));
  EXPECT_FALSE(client.has_up());
  client.expire(kWorldGroup, allreduce_of("a"), std::chrono::seconds(1));
  EXPECT_TRUE(client.take_up().expired);
  client.from_parent({.type = Verdict::Type::query, .value = 3});
  EXPECT_EQ(client.take_up().report.begin()->first.names.at(0).expired_ms, 1000u);
}

TEST_F(ClientTest, TellsWhatItWaitsForOldestFirst) {
  submit("z");
  client.tick();
  submit("b");
  submit("a");
  client.submit(kWorldGroup, "c", message_of("c", 2, 1), 9);
  client.take_up();
  client.from_parent({.type = Verdict::Type::query, .value = 3});
  const Up up = client.take_up();
  EXPECT_TRUE(up.has_report);
  EXPECT_EQ(up.query, 3u);
  ASSERT_EQ(up.report.size(), 1u);
  const auto& [waiting, ranks] = *up.report.begin();
  EXPECT_EQ(ranks, std::vector<int32_t>{1});
  EXPECT_EQ(waiting.names,
            (std::vector<WaitingName>{{0, "z", 1}, {0, "a", 0}, {0, "b", 0}, {0, "c", 0, {1, 2}}}));
  EXPECT_EQ(waiting.last, "c");
  EXPECT_EQ(waiting.more, 0u);
}

TEST_F(ClientTest, TellsHowManyMoreItWaitsFor) {
  for (size_t i = 0; i < kMaxNamesInReport + 3; ++i) submit("op" + std::to_string(i));
  client.take_up();
  client.from_parent({.type = Verdict::Type::query, .value = 1});
  const Waiting waiting = client.take_up().report.begin()->first;
  EXPECT_EQ(waiting.names.size(), kMaxNamesInReport);
  EXPECT_EQ(waiting.more, 3u);
}

TEST_F(ClientTest, TellsFirstOfWhatHasWaitedLongerThanItMay) {
  for (size_t i = 0; i < kMaxNamesInReport + 3; ++i) submit("op" + std::to_string(i));
  submit("z");
  client.tick();
  client.expire(kWorldGroup, allreduce_of("z"), std::chrono::milliseconds(5));
  client.take_up();
  client.from_parent({.type = Verdict::Type::query, .value = 1});
  EXPECT_EQ(client.take_up().report.begin()->first.names.front().name, "z");
}

}  // namespace
}  // namespace hvd
