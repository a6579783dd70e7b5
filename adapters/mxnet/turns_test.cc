#include "adapters/mxnet/turns.h"

#include <gtest/gtest.h>

#include <array>

namespace hvd::mxnet {
namespace {

using namespace std::chrono_literals;

/// Calls are only compared here.
std::array<char, 4> calls;
Call* call(size_t i) { return reinterpret_cast<Call*>(&calls[i]); }
const Turns::Key kA{0, "a"}, kB{0, "b"}, kAOfSet{1, "a"};

TEST(Turns, LetOneCallOfANameStartAtATimeInTheOrderOfTheProgram) {
  Turns turns;
  for (size_t i = 0; i < 3; ++i) turns.add(kA, call(i));
  EXPECT_FALSE(turns.ready(kA, call(2)));
  EXPECT_FALSE(turns.ready(kA, call(1)));
  EXPECT_TRUE(turns.ready(kA, call(0)));
  EXPECT_EQ(turns.remove(kA, call(0)), call(1));
  EXPECT_EQ(turns.remove(kA, call(1)), call(2));
  EXPECT_EQ(turns.remove(kA, call(2)), nullptr);
}

TEST(Turns, DoNotStartACallWhoseArraysAreNotReady) {
  Turns turns;
  turns.add(kA, call(0));
  turns.add(kA, call(1));
  EXPECT_TRUE(turns.ready(kA, call(0)));
  EXPECT_EQ(turns.remove(kA, call(0)), nullptr);
  EXPECT_TRUE(turns.ready(kA, call(1)));
}

TEST(Turns, OfOtherNamesAndSetsAreIndependent) {
  Turns turns;
  turns.add(kA, call(0));
  turns.add(kB, call(1));
  turns.add(kAOfSet, call(2));
  EXPECT_TRUE(turns.ready(kB, call(1)));
  EXPECT_TRUE(turns.ready(kAOfSet, call(2)));
}

TEST(Turns, AreGivenUpByACallThatDoesNotStart) {
  Turns turns;
  for (size_t i = 0; i < 3; ++i) turns.add(kA, call(i));
  EXPECT_FALSE(turns.ready(kA, call(2)));
  EXPECT_EQ(turns.remove(kA, call(1)), nullptr);  // from the middle
  EXPECT_EQ(turns.remove(kA, call(0)), call(2));
}

TEST(Turns, DoNotHoldUpACallOfTheParentProcess) {
  Turns turns;
  EXPECT_TRUE(turns.ready(kA, call(0)));
  EXPECT_EQ(turns.remove(kA, call(0)), nullptr);
}

TEST(Turns, AreWaitedForUntilThereIsNone) {
  Turns turns;
  EXPECT_TRUE(turns.wait_until_empty(0ms));
  turns.add(kA, call(0));
  EXPECT_FALSE(turns.wait_until_empty(0ms));
  turns.remove(kA, call(0));
  EXPECT_TRUE(turns.wait_until_empty(0ms));
}

}  // namespace
}  // namespace hvd::mxnet
