// Calls on a group in which the output overlaps the input on some ranks, by every algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "core/blocking/blocking_group_testing.h"
#include "core/blocking/tensor_task.h"
#include "core/blocking/timed_choice.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 2;
constexpr int kRoot = 1;

int64_t element(int rank, size_t index) {
  return 1'000'000 * (rank + 1) + static_cast<int64_t>(index);
}

int64_t expected(const TensorTask& task, int rank, size_t index) {
  const size_t share = task.rows / kRanks, own = static_cast<size_t>(rank) * share;
  switch (task.operation.kind) {
    case OperationKind::allreduce:
      return element(0, index) + element(1, index);
    case OperationKind::reducescatter:
      return element(0, own + index) + element(1, own + index);
    case OperationKind::broadcast:
      return element(kRoot, index);
    case OperationKind::allgather:
      return element(static_cast<int>(index / task.rows), index % task.rows);
    case OperationKind::alltoall:
      return element(static_cast<int>(index / share), own + index % share);
    default:
      break;
  }
  return -1;
}

Batch batch_of(const TensorTask& task) {
  return {.operation = task.operation,
          .tensors = {{.input = task.input,
                       .output = task.output,
                       .shape = {static_cast<int64_t>(task.rows)}}}};
}

void run(BlockingGroup& group, const TensorTask& task) {
  if (task.bytes() > group.task_limits().of(task.operation.kind))
    group.run(batch_of(task));
  else
    group.run(task, [&] { return batch_of(task); });
}

/// Calls of one kind and size on one rank, which take turns in the same memory: to allocate it for
/// each would be most of the work.
class Overlap {
 public:
  Overlap(BlockingGroup& group, OperationKind kind, size_t rows)
      : group_(group), kind_(kind), memory_((kRanks + 3) * rows), values_(rows) {
    for (size_t i = 0; i < rows; ++i) values_[i] = element(group.rank(), i);
    const TensorTask task = task_at(0);
    expected_.resize(output_bytes(task, group.rank(), kRanks) / sizeof(int64_t));
    for (size_t i = 0; i < expected_.size(); ++i) expected_[i] = expected(task, group.rank(), i);
  }

  /// `distance` elements from the start of the input to the start of the output.
  void run_at(ptrdiff_t distance) {
    const TensorTask task = task_at(distance);
    std::memset(memory_.data(), 0xFF, memory_.size() * sizeof(int64_t));  // -1
    std::ranges::copy(values_, input_at(distance));
    run(group_, task);
    if (std::memcmp(output(), expected_.data(), expected_.size() * sizeof(int64_t)) == 0) return;
    const auto wrong = std::ranges::mismatch(expected_, std::span(output(), expected_.size()));
    FAIL() << "kind " << static_cast<int>(kind_) << ", element " << wrong.in1 - expected_.begin()
           << " of " << values_.size() << " is " << *wrong.in2 << " and not " << *wrong.in1
           << ", distance " << distance << ", rank " << group_.rank();
  }

 private:
  int64_t* output() { return memory_.data() + values_.size(); }
  int64_t* input_at(ptrdiff_t distance) { return output() - distance; }

  TensorTask task_at(ptrdiff_t distance) {
    return {.operation = {.kind = kind_, .dtype = DType::int64, .root = kRoot},
            .input = reinterpret_cast<std::byte*>(input_at(distance)),
            .output = reinterpret_cast<std::byte*>(output()),
            .rows = values_.size(),
            .row_bytes = sizeof(int64_t)};
  }

  BlockingGroup& group_;
  OperationKind kind_;
  std::vector<int64_t> memory_, values_, expected_;
};

/// Enough calls to use every algorithm. The ranks overlap differently in each turn. Over TCP no
/// algorithm is on trial.
void run_all(BlockingGroup group, OperationKind kind, bool has_trials) {
  for (const size_t rows : {size_t{8}, size_t{1200}, size_t{100'000}}) {
    const auto length = static_cast<ptrdiff_t>(rows);
    const ptrdiff_t distances[] = {length / 2, -length / 2, 1, length, -1, 0, -length};
    const size_t trials = rows > 100 && has_trials ? 2 * TimedChoice::kMostTrials : 0;
    const size_t turns = std::max(trials + 5, 2 * std::size(distances));
    Overlap overlap(group, kind, rows);
    for (size_t turn = 0; turn < turns; ++turn) {
      const size_t choice = turn + 3 * static_cast<size_t>(group.rank());
      overlap.run_at(distances[choice % std::size(distances)]);
    }
  }
  group.leave();
}

class BlockingGroupOverlap : public ::testing::TestWithParam<TransportChoice> {};

TEST_P(BlockingGroupOverlap, GivesWhatSeparateMemoryGives) {
  for (const OperationKind kind :
       {OperationKind::allreduce, OperationKind::allgather, OperationKind::broadcast,
        OperationKind::alltoall, OperationKind::reducescatter}) {
    Knobs knobs;
    knobs.transport = GetParam();
    knobs.staging_bytes = MiB;
    on_ranks(kRanks, knobs, [&](Member& member, int) {
      run_all(member.group({0, 1}, "both"), kind, GetParam() != TransportChoice::tcp);
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
}  // namespace hvd::test
