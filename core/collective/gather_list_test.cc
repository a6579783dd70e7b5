#include "core/collective/gather_list.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

ByteVector numbered(size_t bytes, int from) {
  ByteVector made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(from + static_cast<int>(i));
  return made;
}

TEST(GatherList, VisitsEveryRangeAcrossItsPieces) {
  ByteVector a = numbered(5, 0), b = numbered(1, 5), c = numbered(4, 6);
  GatherList list;
  list.add(a.data(), a.size());
  list.add(nullptr, 0);
  list.add(b.data(), b.size());
  list.add(c.data(), c.size());
  ASSERT_EQ(list.bytes(), 10u);
  for (size_t begin = 0; begin <= 10; ++begin)
    for (size_t end = begin; end <= 10; ++end) {
      std::vector<int> seen;
      list.for_each(begin, end - begin, [&](MutableBytes piece, size_t offset) {
        EXPECT_EQ(offset, seen.size());
        EXPECT_FALSE(piece.empty());
        for (const std::byte value : piece) seen.push_back(static_cast<int>(value));
      });
      ASSERT_EQ(seen.size(), end - begin);
      for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int>(begin + i));
    }
}

TEST(GatherList, TellsWhatLiesInOnePiece) {
  ByteVector a = numbered(5, 0), b = numbered(4, 5);
  GatherList list;
  list.add(a.data(), a.size());
  list.add(b.data(), b.size());
  EXPECT_EQ(list.in_one_piece(0, 5), a.data());
  EXPECT_EQ(list.in_one_piece(3, 2), a.data() + 3);
  EXPECT_EQ(list.in_one_piece(5, 4), b.data());
  EXPECT_EQ(list.in_one_piece(6, 1), b.data() + 1);
  EXPECT_EQ(list.in_one_piece(4, 2), nullptr);
  EXPECT_EQ(list.in_one_piece(0, 9), nullptr);
}

TEST(GatherList, AbsentStretchesTakeRoomButHaveNoMemory) {
  ByteVector a = numbered(5, 0), b = numbered(4, 10);
  GatherList list;
  list.add_absent(2);
  list.add_absent(1);
  list.add(a.data(), a.size());
  list.add_absent(0);
  list.add_absent(2);
  list.add(b.data(), b.size());
  list.add_absent(3);
  ASSERT_EQ(list.bytes(), 17u);
  for (size_t at = 0; at < 17; ++at)
    EXPECT_EQ(list.has(at), (at >= 3 && at < 8) || (at >= 10 && at < 14)) << at;
  list.for_each(10, 4, [&](MutableBytes piece, size_t) { EXPECT_EQ(piece.data(), b.data()); });
  EXPECT_DEATH(list.for_each(4, 8, [](MutableBytes, size_t) {}), "nullptr");
}

TEST(GatherList, IsEmptyWithoutPieces) {
  GatherList list;
  list.add(nullptr, 0);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list, GatherList());
}

TEST(GatherList, KeepsAbsentStretchesSideBySideAsOne) {
  GatherList apart, together;
  apart.add_absent(2);
  apart.add_absent(3);
  together.add_absent(5);
  EXPECT_EQ(apart, together);
}

TEST(GatherList, TakesOverAnotherListAndGivesPartsOfIt) {
  ByteVector a = numbered(5, 0), b = numbered(4, 5);
  GatherList list, both;
  list.add(a.data(), 5);
  list.add(b.data(), 4);
  both.add_absent(2);
  both.add(list);
  both.add_absent(3);
  EXPECT_EQ(both.bytes(), 14u);
  EXPECT_FALSE(both.has(1));
  EXPECT_TRUE(both.has(2));
  EXPECT_FALSE(both.has(11));
  GatherList expected;
  expected.add(a.data() + 3, 2);
  expected.add(b.data(), 1);
  EXPECT_EQ(list.part(3, 3), expected);
  EXPECT_EQ(both.part(5, 3), expected);
  EXPECT_EQ(list.part(9, 0), GatherList());
}

}  // namespace
}  // namespace hvd
