#include "core/engine/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/error.h"

namespace hvd {
namespace {

using testing::HasSubstr;

TEST(ProcessSets, TheWorldIsSetZeroFromTheStart) {
  const ProcessSets sets(3);
  EXPECT_EQ(sets.find(0)->ranks, (std::vector{0, 1, 2}));
  EXPECT_EQ(sets.find_group(kWorldGroup), sets.find(0));
  EXPECT_EQ(sets.find(1), nullptr);
}

TEST(ProcessSets, IdsCountUpAndNoneIsUsedTwice) {
  ProcessSets sets(4);
  EXPECT_EQ(sets.add(1, {0}), 1);
  EXPECT_EQ(sets.add(2, {1}), 2);
  EXPECT_EQ(sets.add(3, {2}), 3);
  sets.remove(2);
  sets.remove(1);
  EXPECT_EQ(sets.find(2), nullptr);
  EXPECT_EQ(sets.add(4, {0, 1}), 4);
  EXPECT_EQ(sets.add(5, {1}), 5);
  EXPECT_EQ(sets.find(1), nullptr);
  EXPECT_EQ(sets.find(2), nullptr);
  EXPECT_EQ(sets.find(5)->group, 5U);
}

TEST(ProcessSets, ARankOfTheJobIsFoundInTheSet) {
  const ProcessSet set{.group = 1, .ranks = {1, 4, 6}};
  EXPECT_EQ(set.rank_of(4), 1);
  EXPECT_EQ(set.rank_of(6), 2);
  EXPECT_EQ(set.rank_of(5), kNoRank);
  EXPECT_EQ(set.rank_of(7), kNoRank);
}

TEST(ProcessSets, WhatCannotBeAddedIsToldWithItsRanks) {
  ProcessSets sets(4);
  sets.add(1, {1, 3});
  EXPECT_EQ(sets.why_not({1, 2}), "");
  EXPECT_THAT(sets.why_not({}), HasSubstr("[] has no rank"));
  EXPECT_THAT(sets.why_not({0, 4}), HasSubstr("[0, 4]: rank 4 is outside the job, 0 to 3"));
  EXPECT_THAT(sets.why_not({-1, 2}), HasSubstr("rank -1 is outside"));
  EXPECT_THAT(sets.why_not({0, 2, 2}), HasSubstr("[0, 2, 2] has rank 2 twice"));
  EXPECT_THAT(sets.why_not({1, 3}), HasSubstr("[1, 3] duplicates the one with id 1"));
  EXPECT_THAT(sets.why_not({0, 1, 2, 3}), HasSubstr("duplicates the global process set"));
}

TEST(ProcessSets, ALongListOfRanksIsCutInTexts) {
  EXPECT_EQ(to_text_of_ranks({0, 2}), "[0, 2]");
  EXPECT_THAT(to_text_of_ranks(std::vector<int>(40, 7)), HasSubstr("7, and 8 more]"));
}

TEST(ProcessSets, ThoseOfTheStartAreTermsThatRanksCanCompare) {
  const Terms terms = terms_of_sets({{0, 1}, {2}}, 3);
  EXPECT_EQ(terms.refusal, "");
  EXPECT_EQ(terms.text,
            "the number of process sets=2\n"
            "entry 0 of process_sets=[0, 1]\n"
            "entry 1 of process_sets=[2]\n");
}

TEST(ProcessSets, TermsTellLongSetsApartThoughTheirTextsAreCut) {
  std::vector<int> many(40), others(40);
  std::iota(many.begin(), many.end(), 0);
  others = many;
  others.back() = 99;
  EXPECT_NE(terms_of_sets({many}, 100).text, terms_of_sets({others}, 100).text);
}

TEST(ProcessSets, TermsAreRefusedForTheFirstSetThatCannotBeAdded) {
  EXPECT_THAT(terms_of_sets({{0, 1}, {1}, {0, 1}, {7}}, 3).refusal,
              testing::StartsWith("entry 2 of process_sets: process set [0, 1] duplicates"));
}

}  // namespace
}  // namespace hvd
