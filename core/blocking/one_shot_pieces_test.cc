// A broadcast that has arrived in part. one_shot_call_test.cc tests the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/blocking/one_shot_call.h"
#include "core/group/host_segment.h"
#include "core/group/segment_memory.h"

namespace hvd {
namespace {

constexpr size_t kBytes = 64 * KiB;

/// Consecutive messages through the ring of a root that posts in pieces.
TEST(OneShotPieces, AreTakenAsFarAsTheyAreThere) {
  const auto layout = SegmentLayout::of(2, 64 * KiB, 4096).with_eager_buffers();
  SegmentMemory memory(layout.total_bytes());
  HostSegment first(memory.bytes(), layout, 1, 0), second(memory.bytes(), layout, 1, 1);
  EagerBuffers& root = *first.eager_buffers();
  for (int exchange = 1; exchange <= 100; ++exchange) {
    const auto value = static_cast<std::byte>(exchange);
    std::vector<std::byte> output(kBytes);
    const auto taken = [&] { return static_cast<size_t>(std::ranges::count(output, value)); };
    const TensorTask task{.operation = {.kind = OperationKind::broadcast},
                          .input = output.data(),
                          .output = output.data(),
                          .rows = kBytes,
                          .row_bytes = 1};
    OneShotCall call(*second.eager_buffers(), task);
    EXPECT_EQ(call.advance(), Progress::waiting);
    std::byte* const room = root.reserve(kBytes);
    ASSERT_NE(room, nullptr);
    std::fill_n(room, kBytes, value);
    root.post(40 * KiB);
    EXPECT_EQ(call.advance(), Progress::moved);
    EXPECT_EQ(call.advance(), Progress::waiting);
    EXPECT_EQ(taken(), 32 * KiB);  // whole pieces of 16 KiB
    root.post(kBytes);
    EXPECT_EQ(call.advance(), Progress::done);
    EXPECT_EQ(taken(), kBytes);
    root.finish();
  }
}

}  // namespace
}  // namespace hvd
