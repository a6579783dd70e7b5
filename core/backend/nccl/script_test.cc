// Scripts of batches: the calls depend only on facts that all ranks share.
#include "core/backend/nccl/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hvd::nccl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::byte* memory(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

/// Float32 tensors of these lengths; the first begins at address 4096.
Batch batch_of(OperationKind kind, const std::vector<int64_t>& lengths, bool joined = false) {
  Batch made{.operation = {.kind = kind, .dtype = DType::float32}};
  uintptr_t address = 4096;
  for (const int64_t length : lengths) {
    BatchTensor& tensor = made.tensors.emplace_back();
    tensor.shape = {length};
    if (joined) continue;
    tensor.input = memory(address);
    tensor.output = memory(address + 0x100000);
    address += 4096;
  }
  return made;
}

constexpr DevicePointer kScratch = 0x10000000;

/// The only round.
const Round& round_of(const Script& script) {
  EXPECT_THAT(script.rounds, SizeIs(1));
  return script.rounds.at(0);
}
const std::vector<Call>& calls_of(const Script& script) { return round_of(script).calls; }

void expect_equal_calls(const Script& a, const Script& b) {
  ASSERT_EQ(a.rounds.size(), b.rounds.size());
  for (size_t round = 0; round < a.rounds.size(); ++round) {
    ASSERT_EQ(a.rounds[round].calls.size(), b.rounds[round].calls.size());
    for (size_t i = 0; i < a.rounds[round].calls.size(); ++i)
      EXPECT_EQ(a.rounds[round].calls[i].count, b.rounds[round].calls[i].count);
  }
}

TEST(Script, OneTensorIsReducedWithoutACopy) {
  const Batch batch = batch_of(OperationKind::allreduce, {100});
  const Script script = script_of(batch, {.size = 2, .scratch = kScratch});
  EXPECT_THAT(round_of(script).before, IsEmpty());
  EXPECT_THAT(round_of(script).after, IsEmpty());
  EXPECT_EQ(script.scratch_bytes, 0u);
  ASSERT_THAT(calls_of(script), SizeIs(1));
  EXPECT_EQ(calls_of(script)[0].from, 4096u);
  EXPECT_EQ(calls_of(script)[0].count, 100u);
}

TEST(Script, AnAverageIsASumThatIsDividedOnce) {
  Batch batch = batch_of(OperationKind::allreduce, {100});
  batch.operation.op = ReduceOp::average;
  const Script script = script_of(batch, {.size = 3, .scratch = kScratch});
  EXPECT_EQ(calls_of(script)[0].op, device::kNcclSum);
  ASSERT_THAT(round_of(script).after, SizeIs(1));
  EXPECT_EQ(round_of(script).after[0].scaling.divisor, 3);
}

TEST(Script, TheCallsOfARankThatHasJoinedAreThoseOfTheOthers) {
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{100}, {1, 2, 3}}) {
    const ScriptFacts facts{.size = 2, .scratch = kScratch};
    const Script here = script_of(batch_of(OperationKind::allreduce, lengths), facts);
    const Script joined = script_of(batch_of(OperationKind::allreduce, lengths, true), facts);
    expect_equal_calls(here, joined);
    ASSERT_THAT(round_of(joined).fills, SizeIs(1)) << "of all tensors, which lie together";
    EXPECT_EQ(round_of(joined).fills[0].to, kScratch);
    EXPECT_EQ(round_of(joined).fills[0].bytes, calls_of(joined)[0].count * sizeof(float));
    EXPECT_THAT(round_of(joined).after, IsEmpty());
  }
}

TEST(Script, TensorsThatThisRankHasAreNotFilled) {
  Batch batch = batch_of(OperationKind::allreduce, {8, 8, 8, 8});
  for (const size_t absent : {0, 1, 3}) batch.tensors[absent].input = nullptr;
  const Script script = script_of(batch, {.size = 2, .scratch = kScratch});
  const auto& fills = round_of(script).fills;
  ASSERT_THAT(fills, SizeIs(2));
  EXPECT_EQ(fills[0].to, kScratch);
  EXPECT_EQ(fills[0].bytes, 64u);
  EXPECT_EQ(fills[1].to, kScratch + 96);
  EXPECT_EQ(fills[1].bytes, 32u);
}

TEST(Script, PrivateOutputsDoNotChangeTheCalls) {
  for (const auto kind : {OperationKind::allreduce, OperationKind::broadcast}) {
    const Batch batch = batch_of(kind, {10, 20});
    const Script plain = script_of(batch, {.size = 2, .scratch = kScratch});
    const Script with = script_of(batch, {.size = 2, .overlapping = {0, 1}, .scratch = kScratch});
    expect_equal_calls(plain, with);
    EXPECT_GT(with.scratch_bytes, plain.scratch_bytes);
    ASSERT_THAT(with.after.back().pieces, SizeIs(1)) << "the last tensor is stored last";
    EXPECT_EQ(with.after.back().pieces[0].to, batch.tensors[1].output);
  }
}

TEST(Script, EqualBlocksAreGatheredByOneCallAndOthersByOnePerRank) {
  const Batch batch = batch_of(OperationKind::allgather, {10});
  const Script equal =
      script_of(batch, {.size = 3, .rows = {batch.operation.kind, 3, {10, 10, 10}}});
  ASSERT_THAT(calls_of(equal), SizeIs(1));
  EXPECT_EQ(calls_of(equal)[0].function, Call::Function::all_gather);
  const Script unequal =
      script_of(batch, {.size = 3, .rows = {batch.operation.kind, 3, {10, 0, 30}}});
  std::vector<size_t> counts;
  for (const Call& call : calls_of(unequal)) counts.push_back(call.count);
  EXPECT_THAT(counts, ElementsAre(40u, 120u));
}

TEST(Script, ABatchThatExceedsScratchMemoryTakesRounds) {
  const std::vector<int64_t> lengths{100, 7, 300, 1};
  ScriptFacts facts{.size = 2, .scratch = kScratch, .scratch_limit = 512};
  for (const auto kind :
       {OperationKind::allreduce, OperationKind::reducescatter, OperationKind::allgather}) {
    if (kind == OperationKind::allgather) facts.rows = {kind, 2, {100, 7, 300, 1, 100, 7, 300, 1}};
    const Script script = script_of(batch_of(kind, lengths), facts);
    EXPECT_GE(script.rounds.size(), 4u) << "1632 bytes, 512 at a time";
    EXPECT_LE(script.scratch_bytes, 512u);
    ScriptFacts roomy = facts;
    roomy.scratch_limit = SIZE_MAX;
    const Script at_once = script_of(batch_of(kind, lengths), roomy);
    EXPECT_THAT(at_once.rounds, SizeIs(1));
    EXPECT_GT(at_once.scratch_bytes, 1600u);
  }
  const Script joined = script_of(batch_of(OperationKind::allreduce, lengths, true), facts);
  expect_equal_calls(script_of(batch_of(OperationKind::allreduce, lengths), facts), joined);
  EXPECT_LE(joined.scratch_bytes, 512u);
}

TEST(Script, ALargeTensorTakesRoundsWithoutACopy) {
  const Script script =
      script_of(batch_of(OperationKind::allreduce, {1000}),
                {.size = 2, .scratch = kScratch, .scratch_limit = 64, .single_limit = 1024});
  EXPECT_EQ(script.scratch_bytes, 0u);
  std::vector<DevicePointer> from;
  for (const Round& round : script.rounds) {
    ASSERT_THAT(round.calls, SizeIs(1));
    from.push_back(round.calls[0].from);
  }
  EXPECT_THAT(from, ElementsAre(4096u, 5120u, 6144u, 7168u));
}

TEST(Script, ASingleTensorIsNotCutWhereScratchMemoryEnds) {
  const ScriptFacts facts{.size = 2, .scratch = kScratch, .scratch_limit = 64};
  EXPECT_THAT(calls_of(script_of(batch_of(OperationKind::allreduce, {100'000}), facts)), SizeIs(1));
  const Batch absent = batch_of(OperationKind::allreduce, {100'000}, true);
  EXPECT_THAT(calls_of(script_of(absent, facts)), SizeIs(1)) << "as on the other ranks";
}

TEST(Script, ARoundHasNoMoreCallsThanNcclTakes) {
  const Batch batch = batch_of(OperationKind::broadcast, std::vector<int64_t>(2500, 1));
  const Script script = script_of(batch, {.size = 2, .scratch = kScratch});
  std::vector<size_t> counts;
  for (const Round& round : script.rounds) counts.push_back(round.calls.size());
  EXPECT_THAT(counts, ElementsAre(kMostCalls, kMostCalls, 2500 - 2 * kMostCalls));
  EXPECT_EQ(script.rounds[1].calls[0].from, 4096 * (1 + kMostCalls));
}

/// Also if a rank sends nothing to many others: rounds are divided before.
TEST(Script, MessagesAreInRoundsOfEqualNumberOnAllRanks) {
  constexpr int kRanks = 1200;
  std::vector<int64_t> rows(size_t{kRanks} * kRanks, 1);
  std::fill_n(rows.begin(), 1100, 0);  // of rank 0
  const Batch batch = batch_of(OperationKind::alltoall, {kRanks});
  for (const int rank : {0, 7}) {
    const Script script = script_of(
        batch, {.rank = rank, .size = kRanks, .rows = {batch.operation.kind, kRanks, rows}});
    ASSERT_THAT(script.rounds, SizeIs(3)) << "512 peers each";
    EXPECT_EQ(script.rounds[0].calls.back().peer, 511);
    EXPECT_EQ(script.rounds[2].calls.back().peer, kRanks - 1);
  }
}

TEST(Script, OnlySumsOfSeveralRanksDependOnTheirOrder) {
  const auto depends = [](ReduceOp op, DType dtype = DType::float32, int size = 3) {
    return depends_on_order({.dtype = dtype, .op = op}, size);
  };
  EXPECT_TRUE(depends(ReduceOp::sum));
  EXPECT_TRUE(depends(ReduceOp::average, DType::bfloat16));
  EXPECT_TRUE(depends(ReduceOp::product));
  EXPECT_FALSE(depends(ReduceOp::max));
  EXPECT_FALSE(depends(ReduceOp::min));
  EXPECT_FALSE(depends(ReduceOp::sum, DType::int64));
  EXPECT_FALSE(depends(ReduceOp::sum, DType::float32, 2));
  EXPECT_FALSE(depends_on_order({.kind = OperationKind::broadcast, .dtype = DType::float32}, 3));
}

TEST(Script, WhatNcclOrTheKernelsLackGoesThroughHostMemory) {
  const auto can = [](DType dtype, ReduceOp op, double factor = 1, int size = 2) {
    return can_run_on_gpu({.dtype = dtype, .op = op, .postscale = factor}, size);
  };
  EXPECT_TRUE(can(DType::bfloat16, ReduceOp::average));
  EXPECT_TRUE(can(DType::int64, ReduceOp::sum));
  EXPECT_FALSE(can(DType::int64, ReduceOp::average));
  EXPECT_FALSE(can(DType::int64, ReduceOp::sum, 0.5));
  EXPECT_FALSE(can(DType::int16, ReduceOp::sum));
  EXPECT_FALSE(can(DType::float32, ReduceOp::adasum));
  EXPECT_TRUE(can_run_on_gpu({.kind = OperationKind::broadcast, .dtype = DType::int16}, 2));
}

}  // namespace
}  // namespace hvd::nccl
