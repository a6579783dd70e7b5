// Allreduce, also in levels, reducescatter and broadcast against one process that has all inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <random>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/testing.h"
#include "core/kernel/reference.h"
#include "core/sim/seeds.h"

namespace hvd::testing {
namespace {

namespace reference = kernel::reference;

const std::vector<Shape> kShapes = {{7}, {0}, {1}, {33, 5}, {}, {1100}};

/// A reduction, or a broadcast, on all ranks: their memory and their batches.
struct Case {
  Transfer transfer = Transfer::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  bool in_place = false;
  int joined = -1;  ///< a rank that contributes nothing
  int root = 0;
  std::vector<Shape> shapes = kShapes;
};

class Memory {
 public:
  Memory(const Case& c, int size, uint64_t seed) : case_(c), inputs_(size), outputs_(size) {
    for (int rank = 0; rank < size; ++rank)
      for (const Shape& shape : c.shapes) {
        const auto count = static_cast<size_t>(element_count(shape));
        inputs_[rank].push_back(bytes_of(c.dtype, small_numbers(c.dtype, count, seed++)));
        outputs_[rank].push_back(output_before(rank, inputs_[rank].size() - 1));
      }
  }

  Batch batch(int rank, uint64_t sequence) {
    Batch made{.sequence = sequence,
               .transfer = case_.transfer,
               .dtype = case_.dtype,
               .op = case_.op,
               .prescale = case_.prescale,
               .postscale = case_.postscale,
               .root = case_.root};
    for (size_t i = 0; i < case_.shapes.size(); ++i) {
      BatchTensor& tensor = made.tensors.emplace_back();
      tensor.shape = case_.shapes[i];
      if (rank == case_.joined) continue;
      tensor.output = outputs_[rank][i].data();
      tensor.input = case_.in_place ? tensor.output : inputs_[rank][i].data();
    }
    return made;
  }

  void expect_right() const {
    SCOPED_TRACE(::testing::Message()
                 << "transfer " << static_cast<int>(case_.transfer) << " of "
                 << name_of(case_.dtype) << ", " << name_of(case_.op) << ", in place "
                 << case_.in_place << ", joined " << case_.joined << ", scaled " << case_.prescale
                 << " and " << case_.postscale);
    for (size_t i = 0; i < case_.shapes.size(); ++i) {
      const ByteVector whole =
          case_.transfer == Transfer::broadcast ? inputs_[case_.root][i] : reduced(i);
      for (int rank = 0; rank < size(); ++rank)
        if (rank != case_.joined) {
          ASSERT_EQ(outputs_[rank][i], part(rank, i, whole)) << "tensor " << i << " rank " << rank;
        }
    }
  }

 private:
  int size() const { return static_cast<int>(inputs_.size()); }
  size_t elements(size_t tensor) const {
    return static_cast<size_t>(element_count(case_.shapes[tensor]));
  }

  ByteVector output_before(int rank, size_t tensor) const {
    const ByteVector& input = inputs_[rank][tensor];
    if (case_.in_place) return input;
    const ByteVector other(input.size(), std::byte{0x11});
    return part(rank, tensor, other);
  }

  /// What `rank` gets of a result.
  ByteVector part(int rank, size_t tensor, const ByteVector& whole) const {
    if (case_.transfer != Transfer::reducescatter) return whole;
    const auto rows = static_cast<size_t>(case_.shapes[tensor][0]);
    const size_t row = rows > 0 ? whole.size() / rows : 0;
    const auto n = static_cast<size_t>(size()), r = static_cast<size_t>(rank);
    size_t first = 0;
    for (size_t before = 0; before < r; ++before) first += rows / n + (before < rows % n);
    const size_t count = rows / n + (r < rows % n);
    const auto begin = whole.begin() + static_cast<ptrdiff_t>(first * row);
    return {begin, begin + static_cast<ptrdiff_t>(count * row)};
  }

  ByteVector reduced(size_t tensor) const {
    const size_t count = elements(tensor);
    std::vector<ByteVector> scaled;
    std::vector<const void*> sources;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != case_.joined) scaled.push_back(inputs_[rank][tensor]);
    for (ByteVector& one : scaled) {
      reference::scale(case_.dtype, one.data(), one.data(), case_.prescale, count);
      sources.push_back(one.data());
    }
    ByteVector result(scaled[0].size());
    reference::reduce(case_.op, case_.dtype, result.data(), sources, count);
    if (case_.op == ReduceOp::average && !is_floating(case_.dtype)) return divided(result, count);
    const double share = case_.op == ReduceOp::average ? 1.0 / size() : 1.0;
    reference::scale(case_.dtype, result.data(), result.data(), case_.postscale * share, count);
    return result;
  }

  /// The average of integers, truncated.
  ByteVector divided(const ByteVector& sum, size_t count) const {
    Numbers numbers = numbers_of(case_.dtype, sum.data(), count);
    for (double& number : numbers) number = std::trunc(number / size());
    return bytes_of(case_.dtype, numbers);
  }

  Case case_;
  std::vector<std::vector<ByteVector>> inputs_, outputs_;  // [rank, tensor]
};

/// Runs all cases, one after the other, on one job.
void expect_right(const JobOptions& options, const HostRules& rules,
                  const std::vector<Case>& cases) {
  SCOPED_TRACE(name_of(options));
  Job job(options);
  std::list<Memory> memories;
  std::vector<std::vector<Batch>> batches(static_cast<size_t>(job.size()));
  for (const Case& c : cases) {
    Memory& memory = memories.emplace_back(c, job.size(), 100 * memories.size());
    for (int rank = 0; rank < job.size(); ++rank)
      batches[rank].push_back(memory.batch(rank, 3 + 2 * memories.size()));
  }
  ASSERT_TRUE(job.run(rules, std::move(batches)));
  for (const Memory& memory : memories) memory.expect_right();
}

bool can_reduce(DType dtype, ReduceOp op) {
  return dtype != DType::boolean || op == ReduceOp::min || op == ReduceOp::max;
}

std::vector<Case> reductions(Transfer transfer) {
  std::vector<Case> cases;
  for (const DType dtype : all_types())
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      if (!can_reduce(dtype, op)) continue;
      if (transfer == Transfer::reducescatter && op > ReduceOp::sum) continue;
      Case made{.transfer = transfer, .dtype = dtype, .op = op};
      made.in_place = transfer == Transfer::allreduce && cases.size() % 2 == 0;
      if (transfer == Transfer::reducescatter)
        made.shapes = {{7}, {0, 3}, {1}, {33, 5}, {9, 0}, {1100, 2}};
      cases.push_back(made);
    }
  return cases;
}

std::vector<Case> scaled(Transfer transfer) {
  std::vector<Case> cases;
  for (Case made : reductions(transfer)) {
    if (made.dtype == DType::boolean || made.op != ReduceOp::sum) continue;
    made.prescale = 2.0;
    made.postscale = 0.5;
    cases.push_back(made);
  }
  return cases;
}

std::vector<Case> joined(int rank) {
  std::vector<Case> cases = reductions(Transfer::allreduce);
  for (Case& made : cases) made.joined = rank;
  return cases;
}

TEST(AllreduceRun, EqualsOneProcessThatHasAllInputs) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), reductions(Transfer::allreduce));
}

TEST(AllreduceRun, ScalesBeforeAndAfter) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), scaled(Transfer::allreduce));
}

TEST(AllreduceRun, ARankThatHasJoinedChangesNothing) {
  for (const JobOptions& options : flat_jobs())
    if (options.ranks_per_host != std::vector{1}) expect_right(options, HostRules(), joined(0));
}

TEST(AllreduceRun, OfOneRankThereIsAdasumToo) {
  Case alone{.op = ReduceOp::sum, .prescale = 3, .postscale = 0.5};
  Memory memory(alone, 1, 1);
  Job job({.ranks_per_host = {1}});
  Batch batch = memory.batch(0, 1);
  batch.op = ReduceOp::adasum;
  ASSERT_TRUE(job.run(HostRules(), {{batch}}));
  memory.expect_right();
}

TEST(AllreduceInLevels, EqualsOneProcessThatHasAllInputs) {
  for (const JobOptions& options : level_jobs())
    expect_right(options, level_rules(), reductions(Transfer::allreduce));
}

TEST(AllreduceInLevels, ScalesBeforeAndAfter) {
  for (const JobOptions& options : level_jobs())
    expect_right(options, level_rules(), scaled(Transfer::allreduce));
}

TEST(AllreduceInLevels, ARankThatHasJoinedChangesNothing) {
  for (const JobOptions& options : level_jobs()) expect_right(options, level_rules(), joined(1));
}

TEST(AllreduceInLevels, TakesSeveralSegmentsOfAllItsGroups) {
  Case large{.shapes = {{900000}, {3}}};
  expect_right({.ranks_per_host = {2, 2}, .levels = true}, level_rules(), {large, large});
  expect_right({.ranks_per_host = {3, 3}, .staging_bytes = MiB, .levels = true}, level_rules(),
               {large, large});
}

TEST(AllreduceInLevels, WithTheSameBitsAskedForItDoesNotRun) {
  Knobs knobs;
  knobs.hierarchical_allreduce = knobs.hierarchical_allgather = true;
  EXPECT_TRUE(host_rules(knobs).allreduce_in_levels);
  knobs.deterministic = true;
  EXPECT_FALSE(host_rules(knobs).allreduce_in_levels);
  EXPECT_TRUE(host_rules(knobs).allgather_in_levels);
}

TEST(ReducescatterRun, EqualsOneProcessThatHasAllInputs) {
  for (const JobOptions& options : flat_jobs()) {
    expect_right(options, HostRules(), reductions(Transfer::reducescatter));
    expect_right(options, HostRules(), scaled(Transfer::reducescatter));
  }
}

TEST(ReducescatterRun, TakesSeveralSegments) {
  Case large{.transfer = Transfer::reducescatter, .shapes = {{900000}, {5, 7}}};
  expect_right({.ranks_per_host = {1, 1, 1}}, HostRules(), {large});
  expect_right({.ranks_per_host = {2, 1}}, HostRules(), {large});
  expect_right({.ranks_per_host = {3}}, HostRules(), {large});
}

TEST(ReducescatterRun, WorksForHundredsOfRanks) {
  Case small{.transfer = Transfer::reducescatter, .dtype = DType::int32, .shapes = {{300, 3}, {7}}};
  expect_right({.ranks_per_host = {200}}, HostRules(), {small});
  expect_right({.ranks_per_host = std::vector<int>(100, 1)}, HostRules(), {small});
}

TEST(HostBackend, RunsOfAllKindsFollowEachOtherInAnyOrder) {
  std::vector<Case> cases = reductions(Transfer::allreduce);
  for (const Case& made : reductions(Transfer::reducescatter)) cases.push_back(made);
  for (const DType dtype : all_types())
    cases.push_back({.transfer = Transfer::broadcast, .dtype = dtype, .root = 1});
  for (const uint64_t seed : sim::seeds(6)) {
    std::mt19937_64 random(seed);
    std::shuffle(cases.begin(), cases.end(), random);
    for (JobOptions options : level_jobs()) {
      options.seed = seed;
      expect_right(options, level_rules(), cases);
    }
  }
}

TEST(BroadcastRun, GivesTheRootsValueToAll) {
  for (const JobOptions& options : flat_jobs()) {
    std::vector<Case> cases;
    for (const DType dtype : all_types())
      for (const bool in_place : {false, true}) {
        Case made{.transfer = Transfer::broadcast, .dtype = dtype, .in_place = in_place};
        made.root = static_cast<int>(cases.size()) % ranks_of(options);
        cases.push_back(made);
      }
    expect_right(options, HostRules(), cases);
  }
}

TEST(Reductions, AverageOfLargeIntegersIsExactForAPowerOfTwoOfRanks) {
  for (const int64_t sum : {int64_t{1} << 62, (int64_t{1} << 54), -(int64_t{1} << 62)}) {
    Job job({.ranks_per_host = {2}});
    std::array<int64_t, 2> values = {sum / 2, sum / 2};
    std::vector<std::vector<Batch>> batches(2);
    for (int rank = 0; rank < 2; ++rank) {
      auto* data = reinterpret_cast<std::byte*>(&values[rank]);
      batches[rank].push_back({.sequence = 1,
                               .transfer = Transfer::allreduce,
                               .dtype = DType::int64,
                               .op = ReduceOp::average,
                               .tensors = {{.input = data, .output = data, .shape = {1}}}});
    }
    ASSERT_TRUE(job.run({}, std::move(batches)));
    EXPECT_EQ(values[0], sum / 2);
    EXPECT_EQ(values[1], sum / 2);
  }
}

}  // namespace
}  // namespace hvd::testing
