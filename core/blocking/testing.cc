#include "core/blocking/testing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hvd::test {

bool take_turns(std::mt19937_64& random, size_t ranks, size_t calls,
                const std::function<UnderWay(size_t rank, size_t call)>& begin,
                const std::function<void(size_t rank, size_t call)>& ended) {
  std::vector<size_t> next(ranks, 0);
  std::vector<UnderWay> under_way(ranks);
  size_t left = ranks * calls;
  for (size_t quiet = 0; left > 0; ++quiet) {
    if (quiet > 1000 * ranks) return false;
    const size_t rank = random() % ranks;
    if (next[rank] == calls) continue;
    if (!under_way[rank]) under_way[rank] = begin(rank, next[rank]);
    const Progress progress = under_way[rank]();
    if (progress != Progress::waiting) quiet = 0;
    if (progress != Progress::done) continue;
    under_way[rank] = nullptr;
    if (ended) ended(rank, next[rank]);
    ++next[rank];
    --left;
  }
  return true;
}

void expect_an_orderly_end(const BeginCall& begin, OperationKind kind, int steps) {
  SCOPED_TRACE(::testing::Message()
               << "kind " << static_cast<int>(kind) << ", given up after " << steps << " steps");
  constexpr size_t kElements = 16000;
  Job job({.ranks_per_host = {1, 1}, .seed = 5});
  std::vector<std::vector<int32_t>> in(2), out(2);
  std::vector<TensorTask> tasks(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    in[rank].assign(kElements, static_cast<int32_t>(rank) + 1);
    out[rank].assign(2 * kElements, 0);
    tasks[rank] = {.operation = {.kind = kind, .dtype = DType::int32, .root = 1},
                   .input = reinterpret_cast<std::byte*>(in[rank].data()),
                   .output = reinterpret_cast<std::byte*>(out[rank].data()),
                   .rows = kElements,
                   .row_bytes = sizeof(int32_t)};
  }
  Group& gives_up = *job.groups(0).all;
  const UnderWay peer = begin(*job.groups(1).all, tasks[1]);
  {
    const UnderWay call = begin(gives_up, tasks[0]);
    for (int step = 0; step < steps; ++step) {
      ASSERT_NE(call(), Progress::done);
      ASSERT_NE(peer(), Progress::done);
    }
  }
  std::ranges::fill(in[0], -1);
  std::ranges::fill(out[0], -1);
  auto progress = Progress::moved;
  for (int turn = 0; turn < 100000 && progress != Progress::done; ++turn) {
    gives_up.pump();
    progress = peer();
  }
  ASSERT_EQ(progress, Progress::done);
  const int expected = kind == OperationKind::allreduce   ? 3
                       : kind == OperationKind::broadcast ? 2
                                                          : 1;
  EXPECT_EQ(out[1][0], expected);
  EXPECT_EQ(out[1][kElements - 1], out[1][0]);
  for (const auto& memory : {in[0], out[0]})
    EXPECT_TRUE(std::ranges::all_of(memory, [](int32_t value) { return value == -1; }));
}

}  // namespace hvd::test
