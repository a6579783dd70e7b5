// Operations by one-shot calls within a host, over links and by CMA give results bit-identical to
// the executor's. All ranks run in one thread and advance one step at a time in an order drawn from
// a seed.
#include "core/blocking/one_shot_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/testing.h"
#include "core/blocking/cross_memory_call.h"
#include "core/blocking/one_shot_link_call.h"
#include "core/blocking/reduce_scatter_allgather_call.h"
#include "core/blocking/self_scheduled_call.h"
#include "core/blocking/testing.h"
#include "core/sim/seeds.h"

namespace hvd::test {
namespace {

/// Runs allreduces as a `Call`, other operations as a OneShotCall.
template <class Call>
class Reducing final : public OnAHost {
 public:
  using OnAHost::OnAHost;

 private:
  UnderWay begin(int rank, const TensorTask& task) override {
    if (task.operation.kind != OperationKind::allreduce) return OnAHost::begin(rank, task);
    const auto call = std::make_shared<Call>(slots(rank), task);
    return [call] { return call->advance(); };
  }
};

/// Ranks over links that deliver data in pieces of random lengths.
class OverLinks final : public Ranks {
 public:
  OverLinks(int count, uint64_t seed)
      : Ranks(count, seed),
        job_({.ranks_per_host = std::vector<int>(static_cast<size_t>(count), 1), .seed = seed}),
        sequences_(static_cast<size_t>(count)) {}
  /// Also includes operations that more than two ranks would run by other algorithms.
  SizeLimits limits() const override { return OneShotLinkCall::limits(2); }

 private:
  UnderWay begin(int rank, const TensorTask& task) override {
    const auto call =
        std::make_shared<OneShotLinkCall>(*job_.groups(rank).all, ++sequences_[rank], task);
    return [call] { return call->advance(); };
  }

  Job job_;
  std::vector<uint64_t> sequences_;
};

/// One operation on all ranks, for both algorithms.
struct Drawn {
  TensorTask task;
  std::vector<ByteVector> inputs;             // [rank]
  std::vector<ByteVector> outputs, expected;  // [rank]
  bool in_place = false;
};

Drawn draw(Ranks& all) {
  std::mt19937_64& random = all.random();
  const SizeLimits limits = all.limits();
  const auto ranks = static_cast<size_t>(all.count());
  Drawn drawn;
  TensorTask& task = drawn.task;
  task.operation.kind = static_cast<OperationKind>(random() % 5);
  task.operation.dtype = static_cast<DType>(random() % (static_cast<size_t>(kLastDType) + 1));
  const bool reduces = task.reduces();
  if (reduces && (task.operation.dtype == DType::boolean || task.operation.dtype == DType::uint16))
    task.operation.dtype = DType::float32;
  if (task.operation.kind == OperationKind::reducescatter && random() % 2 == 0)
    task.operation.op = ReduceOp::average;
  if (task.operation.kind == OperationKind::allreduce)
    task.operation.op = std::vector{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                                    ReduceOp::product}[random() % 5];
  if (reduces && random() % 3 == 0) task.operation.postscale = 3.0;
  if (reduces && limits.prescales && random() % 3 == 0) task.operation.prescale = 0.5;
  task.operation.root = static_cast<int>(random() % ranks);
  task.row_bytes = element_bytes(task.operation.dtype) * (1 + random() % 5);
  const size_t most_rows = limits.of(task.operation.kind) / task.row_bytes;
  task.rows = 1 + random() % (random() % 4 == 0 ? most_rows : std::min<size_t>(most_rows, 12));
  if (task.operation.kind == OperationKind::alltoall)
    task.rows = std::max(task.rows / ranks, size_t{1}) * ranks;
  const bool same_size = task.operation.kind == OperationKind::allreduce ||
                         task.operation.kind == OperationKind::broadcast;
  drawn.in_place = same_size && random() % 2 == 0;
  for (int rank = 0; rank < all.count(); ++rank) {
    drawn.inputs.push_back(
        bytes_of(task.operation.dtype,
                 small_numbers(task.operation.dtype,
                               task.bytes() / element_bytes(task.operation.dtype), random())));
    drawn.outputs.emplace_back(output_bytes(task, rank, all.count()));
    drawn.expected.emplace_back(drawn.outputs.back().size());
  }
  return drawn;
}

Batch batch_of(Drawn& drawn, int rank, uint64_t sequence, int ranks) {
  const TensorTask& task = drawn.task;
  Batch batch{.sequence = sequence, .operation = task.operation};
  BatchTensor& tensor = batch.tensors.emplace_back();
  tensor.input = drawn.inputs[rank].data();
  tensor.output = drawn.expected[rank].data();
  tensor.shape = {static_cast<int64_t>(task.rows),
                  static_cast<int64_t>(task.row_bytes / element_bytes(task.operation.dtype))};
  if (task.operation.kind == OperationKind::alltoall)
    tensor.splits.assign(static_cast<size_t>(ranks), static_cast<int32_t>(task.rows) / ranks);
  return batch;
}

TensorTask task_of(Drawn& drawn, int rank) {
  TensorTask task = drawn.task;
  task.output = drawn.outputs[rank].data();
  if (drawn.in_place) drawn.outputs[rank] = drawn.inputs[rank];
  task.input = drawn.in_place ? task.output : drawn.inputs[rank].data();
  return task;
}

/// Runs `count` consecutive operations with both algorithms and compares all outputs.
template <class Kind>
void expect_the_executors_bits(int ranks, uint64_t seed, int count) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, seed " << seed);
  Kind all(ranks, seed);
  Job job({.ranks_per_host = {ranks}, .seed = seed});
  std::vector<Drawn> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(draw(all));
  std::vector<std::vector<Batch>> batches(static_cast<size_t>(ranks));
  std::vector<std::vector<TensorTask>> tasks(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < count; ++i) {
      batches[rank].push_back(batch_of(drawn[i], rank, static_cast<uint64_t>(i + 1), ranks));
      tasks[rank].push_back(task_of(drawn[i], rank));
    }
  ASSERT_TRUE(job.run({.allreduce = {.deterministic = true}}, std::move(batches)));
  ASSERT_TRUE(all.run(tasks));
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(::testing::Message()
                 << "operation " << i << ": kind " << static_cast<int>(drawn[i].task.operation.kind)
                 << " of " << name_of(drawn[i].task.operation.dtype) << ", op "
                 << name_of(drawn[i].task.operation.op) << ", " << drawn[i].task.bytes()
                 << " bytes");
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(drawn[i].outputs[rank], drawn[i].expected[rank]) << "rank " << rank;
  }
}

TEST(OneShotCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (const uint64_t seed : sim::seeds(20)) expect_the_executors_bits<OnAHost>(ranks, seed, 15);
}

TEST(OneShotCall, ServesAsManyRanksAsItSays) {
  expect_the_executors_bits<OnAHost>(EagerBuffers::kMostRanks, 1, 10);
}

TEST(ReduceScatterAllgatherCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (const uint64_t seed : sim::seeds(20))
      expect_the_executors_bits<Reducing<ReduceScatterAllgatherCall>>(ranks, seed, 15);
}

TEST(ReduceScatterAllgatherCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Reducing<ReduceScatterAllgatherCall>>(EagerBuffers::kMostRanks, 1, 10);
}

TEST(SelfScheduledCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (const uint64_t seed : sim::seeds(20))
      expect_the_executors_bits<Reducing<SelfScheduledCall>>(ranks, seed, 15);
}

TEST(SelfScheduledCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Reducing<SelfScheduledCall>>(EagerBuffers::kMostRanks, 1, 10);
}

TEST(CrossMemoryCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (const uint64_t seed : sim::seeds(6)) expect_the_executors_bits<Directly>(ranks, seed, 15);
}

TEST(CrossMemoryCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Directly>(EagerBuffers::kMostRanks, 1, 3);
}

TEST(OneShotLinkCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (const uint64_t seed : sim::seeds(6)) expect_the_executors_bits<OverLinks>(ranks, seed, 15);
}

TEST(OneShotLinkCall, ServesAsManyRanksAsItSays) {
  EXPECT_GT(OneShotLinkCall::limits(64).dealt, 0u);
  EXPECT_EQ(OneShotLinkCall::limits(65).dealt, 0u);
  EXPECT_EQ(OneShotLinkCall::limits(1).dealt, 0u);
  expect_the_executors_bits<OverLinks>(64, 1, 2);
}

TEST(OneShotLinkCall, LeavesToPlansWhatRanksPassOn) {
  const auto reduces = [](int ranks) { return OneShotLinkCall::limits(ranks).reduced > 0; };
  const auto gathers = [](int ranks) { return OneShotLinkCall::limits(ranks).gathered > 0; };
  const auto broadcasts = [](int ranks) { return OneShotLinkCall::limits(ranks).broadcast > 0; };
  EXPECT_TRUE(reduces(2) && gathers(2) && broadcasts(2));
  EXPECT_FALSE(reduces(3) || gathers(3));
  EXPECT_TRUE(broadcasts(3) && broadcasts(4));
  EXPECT_FALSE(broadcasts(5));
}

TEST(OneShotLinkCall, GivenUpLeavesMemoryAlone) {
  const auto begin = [](Group& group, const TensorTask& task) -> UnderWay {
    const auto call = std::make_shared<OneShotLinkCall>(group, 1, task);
    return [call] { return call->advance(); };
  };
  for (const OperationKind kind :
       {OperationKind::allreduce, OperationKind::allgather, OperationKind::broadcast})
    for (const int steps : {1, 2, 4}) expect_an_orderly_end(begin, kind, steps);
}

template <class Kind>
void expect_no_overtaking() {
  Kind all(3, 7);
  constexpr int kCalls = 50;
  std::vector<uint64_t> sent(kCalls);
  std::vector<std::vector<uint64_t>> got(3, std::vector<uint64_t>(kCalls));
  std::vector<std::vector<TensorTask>> tasks(3);
  for (int i = 0; i < kCalls; ++i) {
    sent[i] = static_cast<uint64_t>(i) * 1000;
    for (int rank = 0; rank < 3; ++rank)
      tasks[rank].push_back({.operation = {.kind = OperationKind::broadcast, .dtype = DType::int64},
                             .input = reinterpret_cast<std::byte*>(&sent[i]),
                             .output = reinterpret_cast<std::byte*>(&got[rank][i]),
                             .rows = 1,
                             .row_bytes = sizeof(uint64_t)});
  }
  ASSERT_TRUE(all.run(tasks));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(got[rank], sent);
}

TEST(OneShotCall, BroadcastsFromOneRootDoNotOvertakeTheirReaders) {
  expect_no_overtaking<OnAHost>();
}

/// One rank gives up after `steps` steps and changes its memory. No other rank returns a result
/// that it read there, or writes there afterwards.
void expect_changed_memory_is_let_alone(OperationKind kind, int root, int steps) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << ", root " << root
                                    << ", given up after " << steps << " steps");
  constexpr size_t kElements = 900000, kRanks = 3;  // a part is more than a piece
  Directly all(static_cast<int>(kRanks), 1);
  std::vector<std::unique_ptr<CrossMemoryCall>> calls;
  std::vector<std::vector<int32_t>> in(kRanks, std::vector<int32_t>(kElements, 1));
  std::vector<std::vector<int32_t>> out(kRanks, std::vector<int32_t>(kRanks * kElements));
  std::vector<TensorTask> tasks;
  for (size_t rank = 0; rank < kRanks; ++rank)
    tasks.push_back({.operation = {.kind = kind, .dtype = DType::int32, .root = root},
                     .input = reinterpret_cast<std::byte*>(in[rank].data()),
                     .output = reinterpret_cast<std::byte*>(out[rank].data()),
                     .rows = kElements,
                     .row_bytes = sizeof(int32_t)});
  for (size_t rank = 0; rank < kRanks; ++rank)
    calls.push_back(all.call(static_cast<int>(rank), tasks[rank]));
  for (int step = 0; step < steps; ++step) {
    ASSERT_NE(calls[2]->advance(), Progress::done);
    if (step % 2 == 0) calls[0]->advance();
    if (step == 0) calls[1]->advance();
  }
  calls[2].reset();
  std::ranges::fill(in[2], 99);
  std::ranges::fill(out[2], 99);
  for (int turn = 0; turn < 100; ++turn)
    for (const size_t rank : {size_t{0}, size_t{1}})
      ASSERT_NE(calls[rank]->advance(), Progress::done);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    ASSERT_TRUE(calls[rank]->trouble());
    EXPECT_EQ(calls[rank]->trouble()->rank, 2);
    EXPECT_EQ(calls[rank]->trouble()->error, 0);
  }
  for (const auto& memory : {in[2], out[2]})
    EXPECT_TRUE(std::ranges::all_of(memory, [](int32_t value) { return value == 99; }));
}

TEST(CrossMemoryCall, GivenUpByOneGivesNobodyAResult) {
  for (const OperationKind kind :
       {OperationKind::allreduce, OperationKind::allgather, OperationKind::alltoall,
        OperationKind::reducescatter, OperationKind::broadcast})
    for (const int root : {0, 2})
      for (const int steps : {1, 2, 3, 4, 5}) expect_changed_memory_is_let_alone(kind, root, steps);
}

TEST(OneShotLinkCall, BroadcastsFromOneRootKeepTheirOrder) { expect_no_overtaking<OverLinks>(); }

}  // namespace
}  // namespace hvd::test
