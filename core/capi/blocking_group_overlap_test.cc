// Calls on a group whose output overlaps their input, on some ranks, by every way.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/backend/host/eager_task.h"
#include "core/backend/host/faster_way.h"
#include "core/capi/blocking_group_testing.h"

namespace hvd::testing {
namespace {

constexpr int kRanks = 2;
constexpr int kRoot = 1;

int64_t element(int rank, size_t index) {
  return 1'000'000 * (rank + 1) + static_cast<int64_t>(index);
}

int64_t expected(const EagerTask& task, int rank, size_t index) {
  const size_t share = task.rows / kRanks, own = static_cast<size_t>(rank) * share;
  switch (task.transfer) {
    case Transfer::allreduce:
      return element(0, index) + element(1, index);
    case Transfer::reducescatter:
      return element(0, own + index) + element(1, own + index);
    case Transfer::broadcast:
      return element(kRoot, index);
    case Transfer::allgather:
      return element(static_cast<int>(index / task.rows), index % task.rows);
    case Transfer::alltoall:
      return element(static_cast<int>(index / share), own + index % share);
  }
  return -1;
}

Batch batch_of(const EagerTask& task) {
  return {.transfer = task.transfer,
          .dtype = task.dtype,
          .op = task.op,
          .root = task.root,
          .tensors = {{.input = task.input,
                       .output = task.output,
                       .shape = {static_cast<int64_t>(task.rows)}}}};
}

void run(BlockingGroup& group, const EagerTask& task) {
  if (task.bytes() > group.task_limits().of(task.transfer))
    group.run(batch_of(task));
  else
    group.run(task, [&] { return batch_of(task); });
}

/// With so many elements from the start of the input to that of the output.
void run_overlapping(BlockingGroup& group, Transfer transfer, size_t rows, ptrdiff_t distance) {
  std::vector<int64_t> memory((kRanks + 3) * rows, -1);
  const auto output = memory.begin() + static_cast<ptrdiff_t>(rows);
  const auto input = output - distance;
  for (size_t i = 0; i < rows; ++i) input[static_cast<ptrdiff_t>(i)] = element(group.rank(), i);
  const EagerTask task{.transfer = transfer,
                       .dtype = DType::int64,
                       .root = kRoot,
                       .input = reinterpret_cast<std::byte*>(&*input),
                       .output = reinterpret_cast<std::byte*>(&*output),
                       .rows = rows,
                       .row_bytes = sizeof(int64_t)};
  run(group, task);
  const size_t results = output_bytes(task, group.rank(), kRanks) / sizeof(int64_t);
  for (size_t i = 0; i < results; ++i)
    ASSERT_EQ(output[static_cast<ptrdiff_t>(i)], expected(task, group.rank(), i))
        << "transfer " << static_cast<int>(transfer) << ", element " << i << " of " << rows
        << ", distance " << distance << ", rank " << group.rank();
}

/// Often enough that every way is gone. In each turn the ranks overlap otherwise.
void run_all(BlockingGroup group, Transfer transfer) {
  for (const size_t rows : {size_t{8}, size_t{1200}, size_t{100'000}}) {
    const auto length = static_cast<ptrdiff_t>(rows);
    const ptrdiff_t distances[] = {length / 2, -length / 2, 1, length, -1, 0, -length};
    const size_t turns = rows > 100 ? 2 * FasterWay::kMostTrials + 5 : 20;
    for (size_t turn = 0; turn < turns; ++turn) {
      const size_t choice = turn + 3 * static_cast<size_t>(group.rank());
      run_overlapping(group, transfer, rows, distances[choice % std::size(distances)]);
    }
  }
  group.leave();
}

class BlockingGroupOverlap : public ::testing::TestWithParam<TransportChoice> {};

TEST_P(BlockingGroupOverlap, GivesWhatSeparateMemoryGives) {
  for (const Transfer transfer : {Transfer::allreduce, Transfer::allgather, Transfer::broadcast,
                                  Transfer::alltoall, Transfer::reducescatter}) {
    Knobs knobs;
    knobs.transport = GetParam();
    knobs.staging_bytes = MiB;
    on_ranks(kRanks, knobs, [&](Member& member, int) {
      run_all(member.group({0, 1}, "both"), transfer);
    });
  }
}

TEST_P(BlockingGroupOverlap, OfSeveralTensorsIsStoredInTheirOrder) {
  Knobs knobs;
  knobs.transport = GetParam();
  on_ranks(kRanks, knobs, [&](Member& member, int rank) {
    BlockingGroup group = member.group({0, 1}, "both");
    std::vector<int64_t> values(3000, rank + 1), apart(3000, 10 * (rank + 1));
    Batch batch = sum_of(values);
    batch.tensors.push_back(sum_of(rank == 0 ? values : apart).tensors[0]);
    group.run(batch);
    EXPECT_EQ(values, std::vector<int64_t>(3000, rank == 0 ? 21 : 3));
    EXPECT_EQ(apart, std::vector<int64_t>(3000, rank == 0 ? 10 : 21));
    group.leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, BlockingGroupOverlap,
                         ::testing::Values(TransportChoice::automatic, TransportChoice::tcp),
                         [](const auto& instance) {
                           return instance.param == TransportChoice::tcp ? "Tcp" : "SharedMemory";
                         });

}  // namespace
}  // namespace hvd::testing
