#include "core/base/inbox.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace hvd {
namespace {

using Numbers = Inbox<int, std::string>;

TEST(Inbox, AClosedOneSaysWhyAndOneThatIsOnlyFullDoesNot) {
  Numbers inbox;
  std::vector<int> many(Numbers::kLimit);
  ASSERT_EQ(inbox.push_all(many), Pushed::accepted);
  EXPECT_EQ(inbox.push(1), Pushed::full);
  EXPECT_EQ(inbox.why_closed(), std::nullopt);
  inbox.close("the end");
  EXPECT_EQ(inbox.push(1), Pushed::closed);
  EXPECT_EQ(inbox.why_closed(), "the end");
}

TEST(Inbox, OfSeveralValuesAllAreTakenOrNone) {
  Inbox<std::string, int> inbox;
  std::vector<std::string> most(Numbers::kLimit - 1), two = {"a", "b"}, taken;
  ASSERT_EQ(inbox.push_all(most), Pushed::accepted);
  EXPECT_EQ(inbox.push_all(two), Pushed::full);
  EXPECT_EQ(two, (std::vector<std::string>{"a", "b"}));
  inbox.drain(taken);
  EXPECT_EQ(taken.size(), Numbers::kLimit - 1);
  EXPECT_EQ(inbox.push_all(two), Pushed::accepted);
  inbox.close(0);
  std::vector<std::string> later = {"c"};
  EXPECT_EQ(inbox.push_all(later), Pushed::closed);
  EXPECT_EQ(later.front(), "c");
}

TEST(Inbox, WhatMustNotBeLostGoesInEvenWhenItIsFull) {
  Numbers inbox;
  std::vector<int> many(Numbers::kLimit), taken;
  ASSERT_EQ(inbox.push_all(many), Pushed::accepted);
  EXPECT_EQ(inbox.push_beyond_limit(7), Pushed::accepted);
  inbox.drain(taken);
  EXPECT_EQ(taken.back(), 7);
  inbox.close("the end");
  EXPECT_EQ(inbox.push_beyond_limit(8), Pushed::closed);
}

TEST(Inbox, WhoeverFindsItClosedFindsTheReason) {
  for (int round = 0; round < 300; ++round) {
    Numbers inbox;
    std::vector<std::thread> pushing;
    for (int thread = 0; thread < 3; ++thread) {
      pushing.emplace_back([&] {
        while (inbox.push(1) != Pushed::closed) continue;
        EXPECT_TRUE(inbox.why_closed());
      });
    }
    inbox.close("the end");
    for (std::thread& thread : pushing) thread.join();
  }
}

}  // namespace
}  // namespace hvd
