// Phases that each move a whole tensor give results bit-identical to the executor's with the same
// plan. All ranks run in one thread and advance one step at a time in an order drawn from a seed.
#include "core/blocking/phased_link_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/backend/host/runs.h"
#include "core/blocking/testing.h"
#include "core/collective/executor.h"
#include "core/sim/seeds.h"

namespace hvd::test {
namespace {

Schedule folded(int rank, int size) {
  return folded_allreduce(rank, size, size % 2 == 0 ? size / 2 : size);
}
Schedule from_the_last(int rank, int size) { return binomial_broadcast(rank, size, size - 1); }
Schedule from_the_first(int rank, int size) { return direct_broadcast(rank, size, 0); }

struct Shape {
  Schedule (*make)(int rank, int size);
  OperationKind kind;
};
constexpr std::array kShapes = {Shape{folded, OperationKind::allreduce},
                                Shape{recursive_doubling_allreduce, OperationKind::allreduce},
                                Shape{one_shot_allreduce, OperationKind::allreduce},
                                Shape{tree_allreduce, OperationKind::allreduce},
                                Shape{parameter_server_allreduce, OperationKind::allreduce},
                                Shape{from_the_last, OperationKind::broadcast},
                                Shape{from_the_first, OperationKind::broadcast}};

/// Whether other ranks need data of this rank.
bool reads(const Shape& shape, const Group& group) {
  if (shape.kind == OperationKind::allreduce) return true;
  return group.rank() == (shape.make == from_the_last ? group.size() - 1 : 0);
}

std::shared_ptr<const Plan> plan_of(const Shape& shape, const Group& group,
                                    const TensorTask& task) {
  Schedule schedule = shape.make(group.rank(), group.size());
  Layout layout = split_for(group, schedule, task.bytes(), task.operation.dtype);
  return make_plan(std::move(schedule), std::move(layout));
}

/// One operation on all ranks.
struct Drawn {
  Shape shape{};
  TensorTask task{};                 ///< without addresses
  bool in_place = false;             ///< output equals input
  std::vector<ByteVector> inputs{};  ///< [rank]
};

Drawn draw(std::mt19937_64& random, int ranks) {
  Drawn drawn;
  drawn.shape = kShapes[random() % kShapes.size()];
  TensorTask& task = drawn.task;
  task.operation.kind = drawn.shape.kind;
  task.operation.dtype = std::array{DType::float32, DType::float16, DType::int32}[random() % 3];
  task.operation.op = std::array{ReduceOp::average, ReduceOp::sum, ReduceOp::max}[random() % 3];
  if (task.reduces() && random() % 3 == 0) task.operation.postscale = 3.0;
  task.row_bytes = element_bytes(task.operation.dtype);
  task.rows = 1 + random() % (random() % 3 == 0 ? PhasedLinkCall::kMostBytes / 4 : 100);
  drawn.in_place = random() % 2 == 0;
  for (int rank = 0; rank < ranks; ++rank) {  // sums of thirds depend on the order of additions
    Numbers numbers = small_numbers(DType::float32, task.rows, random());
    for (double& number : numbers) number = number * 10 / 3;
    drawn.inputs.push_back(bytes_of(task.operation.dtype, numbers));
  }
  return drawn;
}

/// The memory of one rank for one operation.
struct Place {
  ByteVector input, output;
  TensorTask task;

  Place(const Drawn& drawn, int rank)
      : input(drawn.inputs[rank]), output(input.size()), task(drawn.task) {
    if (drawn.in_place) output = input;
    task.output = output.data();
    task.input = drawn.in_place ? task.output : input.data();
  }
};

UnderWay in_phases(Group& group, uint64_t sequence, const Shape& shape, const TensorTask& task) {
  const auto call =
      std::make_shared<PhasedLinkCall>(group, sequence, plan_of(shape, group, task), task);
  return [call] { return call->advance(); };
}

UnderWay by_the_executor(Group& group, uint64_t sequence, const Shape& shape,
                         const TensorTask& task) {
  Work work;
  work.batch = sequence;
  work.plan = plan_of(shape, group, task);
  work.dtype = task.operation.dtype;
  work.output.add(task.output, task.bytes());
  if (reads(shape, group))
    work.input.add(const_cast<std::byte*>(task.input), task.bytes());
  else
    work.input.add_absent(task.bytes());
  const auto [op, after] = combination_of(task.operation.op, task.operation.dtype,
                                          task.operation.postscale, group.size());
  work.op = op;
  if (task.reduces()) {
    work.divisor = after.divisor;
    work.postscale = after.factor;
  }
  const auto executor = std::make_shared<Executor>(group, std::move(work));
  return [executor] { return static_cast<Progress>(executor->advance()); };
}
static_assert(int(Progress::done) == int(Progress::done) &&
              int(Progress::moved) == int(Progress::moved));

Job over_links(int ranks, uint64_t seed) {
  return Job({.ranks_per_host = std::vector<int>(static_cast<size_t>(ranks), 1), .seed = seed});
}

/// Runs `all` consecutively and returns the outputs [operation][rank]; empty if no rank can make
/// progress.
template <class Begin>
std::vector<std::vector<ByteVector>> run(Job job, uint64_t seed, const std::vector<Drawn>& all,
                                         Begin begin) {
  std::mt19937_64 random(seed);
  const auto ranks = static_cast<size_t>(job.size());
  std::vector<std::vector<ByteVector>> outputs(all.size(), std::vector<ByteVector>(ranks));
  std::vector<std::optional<Place>> places(ranks);
  const auto begin_next = [&](size_t rank, size_t call) {
    places[rank].emplace(all[call], static_cast<int>(rank));
    return begin(*job.groups(static_cast<int>(rank)).all, call + 1, all[call].shape,
                 places[rank]->task);
  };
  const auto keep = [&](size_t rank, size_t call) {
    outputs[call][rank] = places[rank]->output;
    std::ranges::fill(places[rank]->input, std::byte{0xee});  // must not be read any more
    std::ranges::fill(places[rank]->output, std::byte{0xee});
  };
  if (!take_turns(random, ranks, all.size(), begin_next, keep)) return {};
  return outputs;
}

void expect_the_executors_bits(int ranks, uint64_t seed, int count) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<Drawn> all;
  for (int i = 0; i < count; ++i) all.push_back(draw(random, ranks));
  const auto expected = run(over_links(ranks, seed), seed, all, by_the_executor);
  const auto got = run(over_links(ranks, seed + 1), seed + 1, all, in_phases);
  ASSERT_EQ(expected.size(), all.size());
  ASSERT_EQ(got.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(got[i][rank], expected[i][rank])
          << "operation " << i << " of " << name_of(all[i].task.operation.dtype) << ", op "
          << name_of(all[i].task.operation.op) << ", " << all[i].task.bytes() << " bytes, rank "
          << rank;
}

TEST(PhasedLinkCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 6, 8})
    for (const uint64_t seed : sim::seeds(10)) expect_the_executors_bits(ranks, seed, 15);
}

TEST(PhasedLinkCall, ServesACrowd) { expect_the_executors_bits(32, 1, 4); }

TEST(PhasedLinkCall, SuitsWhatGoesInOnePiece) {
  Job job = over_links(4, 1);
  const Group& group = *job.groups(0).all;
  const auto suits = [&](Schedule schedule, size_t bytes) {
    Layout layout = split_for(group, schedule, bytes, DType::float32);
    return PhasedLinkCall::suits(*make_plan(std::move(schedule), std::move(layout)), 4);
  };
  EXPECT_TRUE(suits(folded_allreduce(0, 4, 2), 8));
  EXPECT_TRUE(suits(binomial_broadcast(0, 4, 0), group.unit_bytes()));
  EXPECT_FALSE(suits(binomial_broadcast(0, 4, 0), group.unit_bytes() + 4));
  EXPECT_FALSE(suits(halving_doubling_allreduce(0, 4), 64));
  EXPECT_FALSE(suits(ring_allreduce(0, 4), 64));
  EXPECT_FALSE(suits(recursive_doubling_allreduce(0, 1), 8));
}

TEST(PhasedLinkCall, GivenUpLeavesMemoryAlone) {
  for (const Shape& shape : {Shape{recursive_doubling_allreduce, OperationKind::allreduce},
                             Shape{from_the_last, OperationKind::broadcast}}) {
    const auto begin = [&](Group& group, const TensorTask& task) {
      return in_phases(group, 1, shape, task);
    };
    for (const int steps : {1, 2, 4}) expect_an_orderly_end(begin, shape.kind, steps);
  }
}

}  // namespace
}  // namespace hvd::test
