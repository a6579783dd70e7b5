// Compares allreduce, also in levels, reducescatter and broadcast with a single process that has
// all inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <random>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/testing.h"
#include "core/kernel/reference.h"
#include "core/sim/seeds.h"

namespace hvd::test {
namespace {

namespace reference = kernel::reference;

const std::vector<Shape> kShapes = {{7}, {0}, {1}, {33, 5}, {}, {1100}};

/// A reduction or broadcast on all ranks: memory and batches.
struct Case {
  OperationKind kind = OperationKind::allreduce;
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
               .operation = {.kind = case_.kind,
                             .dtype = case_.dtype,
                             .op = case_.op,
                             .root = case_.root,
                             .prescale = case_.prescale,
                             .postscale = case_.postscale}};
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
                 << "kind " << static_cast<int>(case_.kind) << " of " << name_of(case_.dtype)
                 << ", " << name_of(case_.op) << ", in place " << case_.in_place << ", joined "
                 << case_.joined << ", scaled " << case_.prescale << " and " << case_.postscale);
    for (size_t i = 0; i < case_.shapes.size(); ++i) {
      const ByteVector whole =
          case_.kind == OperationKind::broadcast ? inputs_[case_.root][i] : reduced(i);
      for (int rank = 0; rank < size(); ++rank)
        if (rank != case_.joined) {
          SCOPED_TRACE(::testing::Message() << "tensor " << i << " rank " << rank);
          expect_equal(outputs_[rank][i], part(rank, i, whole));
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

  /// Means are rounded at every merge, so a floating-point average is only approximate.
  void expect_equal(const ByteVector& actual, const ByteVector& expected) const {
    ASSERT_EQ(actual.size(), expected.size());
    if (case_.op != ReduceOp::average || !is_floating(case_.dtype)) {
      ASSERT_EQ(actual, expected);
      return;
    }
    const double step = case_.dtype == DType::float16    ? 0x1p-9
                        : case_.dtype == DType::bfloat16 ? 0x1p-6
                                                         : 0x1p-22;
    const size_t count = expected.size() / element_bytes(case_.dtype);
    const Numbers numbers = numbers_of(case_.dtype, actual.data(), count),
                  wanted = numbers_of(case_.dtype, expected.data(), count);
    for (size_t k = 0; k < count; ++k) ASSERT_NEAR(numbers[k], wanted[k], step * 2) << k;
  }

  /// The part of a result that `rank` gets.
  ByteVector part(int rank, size_t tensor, const ByteVector& whole) const {
    if (case_.kind != OperationKind::reducescatter) return whole;
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
    const bool averages = case_.op == ReduceOp::average;
    reference::reduce(averages ? ReduceOp::sum : case_.op, case_.dtype, result.data(), sources,
                      count);
    reference::scale(case_.dtype, result.data(), result.data(), case_.postscale, count,
                     averages ? size() : 1);
    return result;
  }

  Case case_;
  std::vector<std::vector<ByteVector>> inputs_, outputs_;  // [rank, tensor]
};

/// Runs all cases consecutively on one job.
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

std::vector<Case> reductions(OperationKind kind) {
  std::vector<Case> cases;
  for (const DType dtype : all_types())
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      if (!can_reduce(dtype, op)) continue;
      if (kind == OperationKind::reducescatter && op > ReduceOp::sum) continue;
      Case made{.kind = kind, .dtype = dtype, .op = op};
      made.in_place = kind == OperationKind::allreduce && cases.size() % 2 == 0;
      if (kind == OperationKind::reducescatter)
        made.shapes = {{7}, {0, 3}, {1}, {33, 5}, {9, 0}, {1100, 2}};
      cases.push_back(made);
    }
  return cases;
}

std::vector<Case> scaled(OperationKind kind) {
  std::vector<Case> cases;
  for (Case made : reductions(kind)) {
    if (made.dtype == DType::boolean || made.op != ReduceOp::sum) continue;
    made.prescale = 2.0;
    made.postscale = 0.5;
    cases.push_back(made);
  }
  return cases;
}

std::vector<Case> joined(int rank) {
  std::vector<Case> cases = reductions(OperationKind::allreduce);
  for (Case& made : cases) made.joined = rank;
  return cases;
}

TEST(AllreduceRun, EqualsOneProcessThatHasAllInputs) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), reductions(OperationKind::allreduce));
}

TEST(AllreduceRun, ScalesBeforeAndAfter) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), scaled(OperationKind::allreduce));
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
  batch.operation.op = ReduceOp::adasum;
  ASSERT_TRUE(job.run(HostRules(), {{batch}}));
  memory.expect_right();
}

TEST(AllreduceInLevels, EqualsOneProcessThatHasAllInputs) {
  for (const JobOptions& options : level_jobs())
    expect_right(options, level_rules(), reductions(OperationKind::allreduce));
}

TEST(AllreduceInLevels, ScalesBeforeAndAfter) {
  for (const JobOptions& options : level_jobs())
    expect_right(options, level_rules(), scaled(OperationKind::allreduce));
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
    expect_right(options, HostRules(), reductions(OperationKind::reducescatter));
    expect_right(options, HostRules(), scaled(OperationKind::reducescatter));
  }
}

TEST(ReducescatterRun, TakesSeveralSegments) {
  Case large{.kind = OperationKind::reducescatter, .shapes = {{900000}, {5, 7}}};
  expect_right({.ranks_per_host = {1, 1, 1}}, HostRules(), {large});
  expect_right({.ranks_per_host = {2, 1}}, HostRules(), {large});
  expect_right({.ranks_per_host = {3}}, HostRules(), {large});
}

TEST(ReducescatterRun, WorksForHundredsOfRanks) {
  Case small{
      .kind = OperationKind::reducescatter, .dtype = DType::int32, .shapes = {{300, 3}, {7}}};
  expect_right({.ranks_per_host = {200}}, HostRules(), {small});
  expect_right({.ranks_per_host = std::vector<int>(100, 1)}, HostRules(), {small});
}

TEST(HostBackend, RunsOfAllKindsFollowEachOtherInAnyOrder) {
  std::vector<Case> cases = reductions(OperationKind::allreduce);
  for (const Case& made : reductions(OperationKind::reducescatter)) cases.push_back(made);
  for (const DType dtype : all_types())
    cases.push_back({.kind = OperationKind::broadcast, .dtype = dtype, .root = 1});
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
        Case made{.kind = OperationKind::broadcast, .dtype = dtype, .in_place = in_place};
        made.root = static_cast<int>(cases.size()) % ranks_of(options);
        cases.push_back(made);
      }
    expect_right(options, HostRules(), cases);
  }
}

/// An average in place; all ranks have the same input.
void average_in_place(const JobOptions& options, const HostRules& rules, DType dtype,
                      std::vector<ByteVector>& memory) {
  Job job(options);
  std::vector<std::vector<Batch>> batches(memory.size());
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    std::byte* const data = memory[rank].data();
    const auto count = static_cast<int64_t>(memory[rank].size() / element_bytes(dtype));
    batches[rank].push_back(
        {.sequence = 1,
         .operation = {.kind = OperationKind::allreduce, .dtype = dtype, .op = ReduceOp::average},
         .tensors = {{.input = data, .output = data, .shape = {count}}}});
  }
  ASSERT_TRUE(job.run(rules, std::move(batches)));
}

/// All jobs. Jobs with levels use the rules for levels.
std::vector<std::pair<JobOptions, HostRules>> all_jobs() {
  std::vector<std::pair<JobOptions, HostRules>> jobs;
  for (const JobOptions& options : flat_jobs()) jobs.emplace_back(options, HostRules());
  for (const JobOptions& options : level_jobs()) jobs.emplace_back(options, level_rules());
  return jobs;
}

ByteVector integers(const std::vector<int64_t>& values) {
  ByteVector bytes(values.size() * sizeof(int64_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Averages, OfLargeIntegersAreExact) {
  constexpr int64_t kBeyondDouble = (int64_t{1} << 53) + 1;
  for (const auto& [options, rules] : all_jobs()) {
    SCOPED_TRACE(name_of(options));
    const int64_t ranks = ranks_of(options), part = (int64_t{1} << 62) / ranks;
    const ByteVector values = integers({kBeyondDouble, -kBeyondDouble, part, -part});
    std::vector<ByteVector> memory(static_cast<size_t>(ranks), values);
    average_in_place(options, rules, DType::int64, memory);
    for (const ByteVector& result : memory) EXPECT_EQ(result, values);
  }
}

TEST(Averages, OfLargeHalvesDoNotOverflow) {
  for (const auto& [options, rules] : all_jobs()) {
    SCOPED_TRACE(name_of(options));
    const ByteVector values = bytes_of(DType::float16, Numbers(1500, 60000.0));
    std::vector<ByteVector> memory(static_cast<size_t>(ranks_of(options)), values);
    average_in_place(options, rules, DType::float16, memory);
    for (const ByteVector& result : memory) EXPECT_EQ(result, values);
  }
}

/// MPI sums float32 and float64 in their own precision, which may lose a digit.
bool keeps_equal_numbers(const JobOptions& options, DType dtype) {
  return options.mpi_call_bytes == 0 || dtype == DType::float16 || dtype == DType::bfloat16;
}

TEST(Averages, OfEqualNumbersAreThatNumber) {
  std::mt19937_64 random(5);
  Numbers numbers(700);
  for (double& number : numbers) number = static_cast<double>(random()) * 0x1p-50 - 7000.0;
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
    for (const auto& [options, rules] : all_jobs()) {
      if (!keeps_equal_numbers(options, dtype)) continue;
      SCOPED_TRACE(::testing::Message() << name_of(options) << ", " << name_of(dtype));
      const ByteVector values = bytes_of(dtype, numbers);
      std::vector<ByteVector> memory(static_cast<size_t>(ranks_of(options)), values);
      average_in_place(options, rules, dtype, memory);
      for (const ByteVector& result : memory) ASSERT_EQ(result, values);
    }
}

}  // namespace
}  // namespace hvd::test
