#include "core/collective/wavefront.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace hvd {
namespace {

using Unit = std::pair<size_t, size_t>;  // segment, phase

TEST(Wavefront, VisitsEveryUnitOnceAndPhasesOfASegmentInOrder) {
  for (const size_t segments : {1, 2, 3, 8, 40})
    for (const size_t phases : {1, 2, 5, 14})
      for (const uint32_t overlapping : {1, 2, 3, 4, 16}) {
        std::map<Unit, size_t> index;
        for (Wavefront at(segments, phases, overlapping); !at.done(); at.next()) {
          const Unit unit{at.segment(), at.phase()};
          ASSERT_LT(unit.first, segments);
          ASSERT_LT(unit.second, phases);
          EXPECT_TRUE(index.emplace(unit, at.index()).second);
          const bool first_phase = unit.second == 0, first_segment = unit.first == 0;
          EXPECT_TRUE(first_phase || index.contains({unit.first, unit.second - 1}));
          EXPECT_TRUE(first_segment || index.contains({unit.first - 1, unit.second}));
        }
        EXPECT_EQ(index.size(), segments * phases);
      }
}

TEST(Wavefront, KnowsWhatItHasPassed) {
  for (const uint32_t overlapping : {1, 2, 4, 8}) {
    std::map<Unit, size_t> index;
    for (Wavefront at(7, 3, overlapping); !at.done(); at.next())
      index[{at.segment(), at.phase()}] = at.index();
    for (Wavefront at(7, 3, overlapping);; at.next()) {
      for (const auto& [unit, place] : index)
        EXPECT_EQ(at.passed(unit.first, unit.second), place < at.index());
      if (at.done()) break;
    }
  }
}

TEST(Wavefront, PacksTheNextSegmentBeforeTheLastPhaseOfThisOne) {
  std::map<Unit, size_t> index;
  for (Wavefront at(4, 2, 4); !at.done(); at.next()) index[{at.segment(), at.phase()}] = at.index();
  const size_t next_packed = index.at({1, 0}), this_collected = index.at({0, 1});
  EXPECT_LT(next_packed, this_collected);
}

TEST(Wavefront, OpensOnlyAsManySegmentsAsOverlap) {
  for (const uint32_t overlapping : {1, 2, 3, 4}) {
    std::map<size_t, size_t> left;  // remaining phases of open segments
    size_t most = 0;
    for (Wavefront at(9, 12, overlapping); !at.done(); at.next()) {
      const auto [segment, is_new] = left.try_emplace(at.segment(), 12);
      most = std::max(most, left.size());
      if (--segment->second == 0) left.erase(segment);
    }
    EXPECT_EQ(most, overlapping);
  }
}

TEST(Wavefront, IsDoneAtOnceWithoutUnits) {
  EXPECT_TRUE(Wavefront(0, 3, 4).done());
  EXPECT_TRUE(Wavefront(3, 0, 4).done());
}

}  // namespace
}  // namespace hvd
