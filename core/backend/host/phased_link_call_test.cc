// Phases that each move a whole tensor give the bits that the executor gives by the same plan. All
// ranks in one thread, a step of one at a time, in an order drawn from a seed.
#include "core/backend/host/phased_link_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/backend/host/runs.h"
#include "core/backend/host/testing.h"
#include "core/collective/executor.h"

namespace hvd::testing {
namespace {

Schedule folded(int rank, int size) {
  return folded_allreduce(rank, size, size % 2 == 0 ? size / 2 : size);
}
Schedule from_the_last(int rank, int size) { return binomial_broadcast(rank, size, size - 1); }
Schedule from_the_first(int rank, int size) { return direct_broadcast(rank, size, 0); }

struct Shape {
  Schedule (*make)(int rank, int size);
  Transfer transfer;
};
constexpr std::array kShapes = {Shape{folded, Transfer::allreduce},
                                Shape{recursive_doubling_allreduce, Transfer::allreduce},
                                Shape{one_shot_allreduce, Transfer::allreduce},
                                Shape{tree_allreduce, Transfer::allreduce},
                                Shape{parameter_server_allreduce, Transfer::allreduce},
                                Shape{from_the_last, Transfer::broadcast},
                                Shape{from_the_first, Transfer::broadcast}};

/// Whether this rank has anything that others want.
bool reads(const Shape& shape, const Group& group) {
  if (shape.transfer == Transfer::allreduce) return true;
  return group.rank() == (shape.make == from_the_last ? group.size() - 1 : 0);
}

std::shared_ptr<const Plan> plan_of(const Shape& shape, const Group& group, const EagerTask& task) {
  Schedule schedule = shape.make(group.rank(), group.size());
  Layout layout = split_for(group, schedule, task.bytes(), task.dtype);
  return make_plan(std::move(schedule), std::move(layout));
}

/// One operation on all ranks.
struct Drawn {
  Shape shape{};
  EagerTask task{};                  ///< without addresses
  bool in_place = false;             ///< where a task has memory for both
  std::vector<ByteVector> inputs{};  ///< [rank]
};

Drawn draw(std::mt19937_64& random, int ranks) {
  Drawn drawn;
  drawn.shape = kShapes[random() % kShapes.size()];
  EagerTask& task = drawn.task;
  task.transfer = drawn.shape.transfer;
  task.dtype = std::array{DType::float32, DType::float16, DType::int32}[random() % 3];
  task.op = std::array{ReduceOp::average, ReduceOp::sum, ReduceOp::max}[random() % 3];
  if (task.reduces() && random() % 3 == 0) task.postscale = 3.0;
  task.row_bytes = element_bytes(task.dtype);
  task.rows = 1 + random() % (random() % 3 == 0 ? PhasedLinkCall::kMostBytes / 4 : 100);
  drawn.in_place = random() % 2 == 0;
  for (int rank = 0; rank < ranks; ++rank) {  // sums of thirds depend on their order
    Numbers numbers = small_numbers(DType::float32, task.rows, random());
    for (double& number : numbers) number = number * 10 / 3;
    drawn.inputs.push_back(bytes_of(task.dtype, numbers));
  }
  return drawn;
}

/// The memory of one rank for one operation.
struct Place {
  ByteVector input, output;
  EagerTask task;

  Place(const Drawn& drawn, int rank)
      : input(drawn.inputs[rank]), output(input.size()), task(drawn.task) {
    if (drawn.in_place) output = input;
    task.output = output.data();
    task.input = drawn.in_place ? task.output : input.data();
  }
};

UnderWay in_phases(Group& group, uint64_t sequence, const Shape& shape, const EagerTask& task) {
  const auto call =
      std::make_shared<PhasedLinkCall>(group, sequence, plan_of(shape, group, task), task);
  return [call] { return call->advance(); };
}

UnderWay by_the_executor(Group& group, uint64_t sequence, const Shape& shape,
                         const EagerTask& task) {
  Work work;
  work.batch = sequence;
  work.plan = plan_of(shape, group, task);
  work.dtype = task.dtype;
  work.output.add(task.output, task.bytes());
  if (reads(shape, group))
    work.input.add(const_cast<std::byte*>(task.input), task.bytes());
  else
    work.input.add_absent(task.bytes());
  const auto [op, after] = combination_of(task.op, task.dtype, task.postscale, group.size());
  work.op = op;
  if (task.reduces()) {
    work.divisor = after.divisor;
    work.postscale = after.factor;
  }
  const auto executor = std::make_shared<Executor>(group, std::move(work));
  return [executor] { return static_cast<Run::Progress>(executor->advance()); };
}
static_assert(int(Executor::Progress::done) == int(Run::Progress::done) &&
              int(Executor::Progress::moved) == int(Run::Progress::moved));

Job over_links(int ranks, uint64_t seed) {
  return Job({.ranks_per_host = std::vector<int>(static_cast<size_t>(ranks), 1), .seed = seed});
}

/// The outputs, [operation][rank], of `all` in a row. Empty when nobody can go on.
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
    std::ranges::fill(places[rank]->input, std::byte{0xee});  // nobody reads it any more
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
          << "operation " << i << " of " << name_of(all[i].task.dtype) << ", op "
          << name_of(all[i].task.op) << ", " << all[i].task.bytes() << " bytes, rank " << rank;
}

TEST(PhasedLinkCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 6, 8})
    for (uint64_t seed = 1; seed <= 10; ++seed) expect_the_executors_bits(ranks, seed, 15);
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
  for (const Shape& shape : {Shape{recursive_doubling_allreduce, Transfer::allreduce},
                             Shape{from_the_last, Transfer::broadcast}}) {
    const auto begin = [&](Group& group, const EagerTask& task) {
      return in_phases(group, 1, shape, task);
    };
    for (const int steps : {1, 2, 4}) expect_an_orderly_end(begin, shape.transfer, steps);
  }
}

}  // namespace
}  // namespace hvd::testing
