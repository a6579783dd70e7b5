#include "core/collective/layout.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

/// Checks that every byte belongs to one chunk of one segment, and that the chunks of a segment are
/// contiguous in its unit.
void expect_exact_cover(const Layout& layout, size_t bytes, size_t segment_bytes, size_t element) {
  std::vector<int> covered(bytes);
  for (size_t segment = 0; segment < layout.segments(); ++segment) {
    size_t in_unit = 0;
    for (int chunk = 0; chunk < layout.chunks(); ++chunk) {
      const Extent extent = layout.extent(segment, chunk);
      ASSERT_LE(extent.offset + extent.bytes, bytes);
      EXPECT_EQ(extent.bytes % element, 0u);
      EXPECT_EQ(layout.offset_in_unit(segment, 0, chunk), in_unit);
      in_unit += extent.bytes;
      for (size_t i = 0; i < extent.bytes; ++i) ++covered[extent.offset + i];
    }
    EXPECT_EQ(layout.offset_in_unit(segment, 0, layout.chunks()), in_unit);
    EXPECT_LE(in_unit, segment_bytes);
    EXPECT_GT(in_unit, 0u);
  }
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(covered[i], 1) << "byte " << i;
}

TEST(Layout, SplitCoversEveryByteOnceWithWholeElements) {
  for (const size_t element : {1, 2, 4, 8})
    for (const size_t elements : {1, 2, 7, 64, 100, 1001})
      for (const size_t segment_bytes : {8, 24, 64, 100, 256, 4096})
        for (const int chunks : {1, 2, 3, 7, 64}) {
          SCOPED_TRACE(testing::Message() << elements << " x " << element << " in segments of "
                                          << segment_bytes << ", chunks " << chunks);
          const Layout layout = Layout::split(elements * element, segment_bytes, chunks, element);
          EXPECT_EQ(layout.bytes(), elements * element);
          expect_exact_cover(layout, elements * element, segment_bytes, element);
        }
}

TEST(Layout, SplitKeepsChunksNearlyEqualAndOnCacheLines) {
  const Layout layout = Layout::split(100000, 40000, 3, 4);
  for (size_t segment = 0; segment < layout.segments(); ++segment)
    for (int chunk = 0; chunk < 3; ++chunk) {
      EXPECT_EQ(layout.extent(segment, chunk).offset % 64, 0u);
      EXPECT_NEAR(static_cast<double>(layout.extent(segment, chunk).bytes), 100000.0 / 9, 64);
    }
}

TEST(Layout, BlocksCoverEveryByteOnce) {
  for (const size_t segment_bytes : {32, 100, 4096}) {
    const std::vector<size_t> blocks = {40, 0, 8, 1000};
    const Layout layout = Layout::blocks(blocks, segment_bytes, static_cast<int>(blocks.size()), 8);
    EXPECT_EQ(layout.chunks(), 4);
    expect_exact_cover(layout, 1048, segment_bytes, 8);
  }
}

TEST(Layout, ABlockIsItsChunkInAllSegments) {
  const Layout layout = Layout::blocks({16, 40}, 32, 2, 8);
  ASSERT_EQ(layout.segments(), 3u);
  EXPECT_EQ(layout.extent(0, 1).offset, 16u);
  EXPECT_EQ(layout.extent(0, 1).bytes, 16u);
  EXPECT_EQ(layout.extent(1, 0).bytes, 0u);
  EXPECT_EQ(layout.extent(2, 1).offset, 48u);
  EXPECT_EQ(layout.extent(2, 1).bytes, 8u);
  EXPECT_EQ(layout.offset_in_unit(2, 0, 1), 0u);  // block 0 has ended
}

TEST(Layout, AUnitBeginsWithItsBaseWhicheverChunksFollow) {
  for (const std::vector<size_t>& blocks :
       {std::vector<size_t>{40, 0, 8, 1000, 64}, std::vector<size_t>(5, 200)})
    for (const Layout& layout :
         {Layout::blocks(blocks, 64, 3, 8), Layout::split(1112, 256, 5, 8)}) {
      for (size_t segment = 0; segment < layout.segments(); ++segment)
        for (int base = 0; base < 5; ++base) {
          size_t in_unit = 0;
          for (int chunk = base; chunk < 5; ++chunk) {
            EXPECT_EQ(layout.offset_in_unit(segment, base, chunk), in_unit);
            in_unit += layout.extent(segment, chunk).bytes;
          }
        }
    }
}

TEST(Layout, BlocksTakeAsMuchOfEachAsTheRoomOfOneRankHolds) {
  EXPECT_EQ(Layout::blocks({1024, 1024, 512, 0}, 256, 1, 8).extent(0, 2).bytes, 256u);
  EXPECT_EQ(Layout::blocks({1024, 1024, 512, 0}, 256, 1, 8).segments(), 4u);
  EXPECT_EQ(Layout::blocks({1024, 1024, 512, 0}, 256, 4, 8).segments(), 16u);
  EXPECT_EQ(Layout::blocks({1024, 1024}, 250, 2, 4).extent(0, 0).bytes, 64u);  // a cache line
}

TEST(Layout, NothingHasNoSegments) {
  EXPECT_EQ(Layout::split(0, 256, 4, 4).segments(), 0u);
  EXPECT_EQ(Layout::blocks({0, 0}, 256, 2, 4).segments(), 0u);
}

}  // namespace
}  // namespace hvd
