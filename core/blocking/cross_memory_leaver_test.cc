// A rank that gives up a call while another rank writes into its memory. Uses two threads and has
// its own file, because the tests for TSan are selected by file.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/blocking/cross_memory_call.h"
#include "core/blocking/testing.h"

namespace hvd::test {
namespace {

TEST(CrossMemoryCall, GivenUpWaitsForWhoWritesUnlessThatRankHasEnded) {
  Directly all(2, 1);
  std::vector<int32_t> numbers(1000);
  auto* const memory = reinterpret_cast<std::byte*>(numbers.data());
  const TensorTask task{.operation = {.dtype = DType::int32},
                        .input = memory,
                        .output = memory,
                        .rows = numbers.size(),
                        .row_bytes = sizeof(int32_t)};
  std::unique_ptr<CrossMemoryCall> call = all.call(1, task);
  ASSERT_NE(call->advance(), Progress::done);
  ASSERT_TRUE(all.slots(0).begin_writing());
  std::atomic<bool> is_back = false;
  std::jthread leaver([&] {
    call.reset();
    is_back = true;
  });
  while (all.slots(0).who_has_given_up() < 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_back);
  all.slots(0).end_writing();
  leaver.join();

  Directly others(2, 1);
  ASSERT_TRUE(others.slots(0).begin_writing());  // then it is killed
  const CrossMemoryCall::HasEnded all_end = [](int) { return true; };
  others.call(1, task, all_end).reset();
}

}  // namespace
}  // namespace hvd::test
