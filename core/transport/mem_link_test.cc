#include "core/transport/mem_link.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd {
namespace {

std::vector<size_t> portions(uint64_t seed) {
  auto [first, second] = MemLink::make_pair({.capacity = 1000, .split_seed = seed});
  const ByteVector block(1000);
  std::vector<size_t> out;
  for (int i = 0; i < 20; ++i) out.push_back(first->send_some(block));
  return out;
}

TEST(MemLink, TheSameSeedCutsTransfersAlike) {
  EXPECT_EQ(portions(3), portions(3));
  EXPECT_NE(portions(3), portions(4));
}

TEST(MemLink, HoldsNoMoreThanItsCapacity) {
  auto [first, second] = MemLink::make_pair({.capacity = 100});
  const ByteVector block(64);
  EXPECT_EQ(first->send_some(block), 64u);
  EXPECT_EQ(first->send_some(block), 36u);
  EXPECT_EQ(first->send_some(block), 0u);
}

TEST(MemLink, ABreakLosesWhatWasOnTheWayAtBothEnds) {
  auto [first, second] = MemLink::make_pair({.first_rank = 4, .second_rank = 9});
  first->send_some(ByteVector(10));
  first->break_now();
  ByteVector room(10);
  const auto lost_rank = [&](Link& link) {
    try {
      link.receive_some(room);
    } catch (const Error& error) {
      return error.rank();
    }
    return -2;
  };
  EXPECT_EQ(lost_rank(*first), 9);
  EXPECT_EQ(lost_rank(*second), 4);
  EXPECT_EQ(first->send_some(room), 0u);
}

}  // namespace
}  // namespace hvd
