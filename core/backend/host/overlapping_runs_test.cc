// Compares batches of overlapping tensors in one memory with the same batches of separate tensors.
// Every operation reads its input as it was before the batch, and results are stored in the order
// of the tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <list>
#include <random>
#include <vector>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/testing.h"
#include "core/sim/seeds.h"

namespace hvd::test {
namespace {

struct Case {
  OperationKind kind = OperationKind::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  std::vector<Shape> shapes{};
  bool joined_rank_0 = false;
};

/// The offsets of a tensor in the memory of its rank, in bytes.
struct Offsets {
  size_t input = 0;
  size_t output = 0;
};

/// One batch on all ranks, twice: with tensors in one memory, and with copies of them.
class Memory {
 public:
  Memory(Case c, int size, uint64_t seed)
      : case_(std::move(c)), random_(seed), ranks_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) draw_places(rank);
    for (int rank = 0; rank < size; ++rank) fill(rank);
  }

  Batch overlapping(int rank, uint64_t sequence) {
    Rank& one = ranks_[rank];
    return batch(rank, sequence, [&](size_t i, BatchTensor& tensor) {
      tensor.input = one.memory.data() + one.places[i].input;
      tensor.output = one.memory.data() + one.places[i].output;
    });
  }
  Batch apart(int rank, uint64_t sequence) {
    Rank& one = ranks_[rank];
    return batch(rank, sequence, [&](size_t i, BatchTensor& tensor) {
      tensor.input = one.inputs[i].data();
      tensor.output = one.outputs[i].data();
    });
  }

  void expect_equal() const {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (has_joined(static_cast<int>(rank))) continue;
      const Rank& one = ranks_[rank];
      ByteVector expected = one.before;
      for (size_t i = 0; i < one.places.size(); ++i)
        std::ranges::copy(one.outputs[i],
                          expected.begin() + static_cast<ptrdiff_t>(one.places[i].output));
      ASSERT_EQ(one.memory, expected)
          << "rank " << rank << " of " << ranks_.size() << ", kind " << static_cast<int>(case_.kind)
          << " of " << name_of(case_.dtype) << ", " << name_of(case_.op) << ", prescale "
          << case_.prescale;
    }
  }

 private:
  struct Rank {
    std::vector<Offsets> places;
    ByteVector before, memory;
    std::vector<ByteVector> inputs, outputs;
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  bool has_joined(int rank) const { return case_.joined_rank_0 && rank == 0; }

  template <class Bind>
  Batch batch(int rank, uint64_t sequence, Bind bind) const {
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
      if (!has_joined(rank)) bind(i, tensor);
    }
    return made;
  }

  size_t input_elements(size_t tensor) const {
    return static_cast<size_t>(element_count(case_.shapes[tensor]));
  }
  size_t output_elements(int rank, size_t tensor) const {
    const Batch like{.operation = {.kind = case_.kind, .dtype = case_.dtype}};
    return output_bytes(like, {.shape = case_.shapes[tensor]}, rank, size()) /
           element_bytes(case_.dtype);
  }

  /// The memory is so small that many tensors overlap, but on some ranks none.
  void draw_places(int rank) {
    std::vector<size_t> inputs, outputs;
    size_t longest = 0, all = 0;
    for (size_t i = 0; i < case_.shapes.size(); ++i) {
      inputs.push_back(input_elements(i));
      outputs.push_back(output_elements(rank, i));
      longest = std::max({longest, inputs[i], outputs[i]});
      all += inputs[i] + outputs[i];
    }
    const bool apart = random_() % 4 == 0;
    const size_t elements = apart ? all : longest + random_() % (longest + 1);
    size_t next = 0;
    const auto place = [&](size_t count) {
      next += count;
      const size_t at = apart ? next - count : random_() % (elements - count + 1);
      return at * element_bytes(case_.dtype);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      Offsets& made = ranks_[rank].places.emplace_back();
      made.input = place(inputs[i]);
      made.output = place(outputs[i]);
      if (inputs[i] == outputs[i] && random_() % 2 == 0) made.output = made.input;
      if (i > 0 && inputs[i] == inputs[i - 1] && random_() % 2 == 0)
        made = ranks_[rank].places[i - 1];
    }
    ranks_[rank].before = bytes_of(case_.dtype, small_numbers(case_.dtype, elements, random_()));
  }

  void fill(int rank) {
    Rank& one = ranks_[rank];
    one.memory = one.before;
    for (size_t i = 0; i < one.places.size(); ++i) {
      const auto begin = one.before.begin() + static_cast<ptrdiff_t>(one.places[i].input);
      const size_t element = element_bytes(case_.dtype);
      one.inputs.emplace_back(begin, begin + static_cast<ptrdiff_t>(input_elements(i) * element));
      one.outputs.emplace_back(output_elements(rank, i) * element);
    }
  }

  Case case_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
};

void expect_equal(const JobOptions& options, const HostRules& rules,
                  const std::vector<Case>& cases) {
  SCOPED_TRACE(name_of(options));
  Job job(options);
  std::list<Memory> memories;
  std::vector<std::vector<Batch>> batches(static_cast<size_t>(job.size()));
  for (const Case& c : cases) {
    Memory& memory = memories.emplace_back(c, job.size(), options.seed + 1000 * memories.size());
    for (int rank = 0; rank < job.size(); ++rank) {
      batches[rank].push_back(memory.apart(rank, 2 * memories.size()));
      batches[rank].push_back(memory.overlapping(rank, 2 * memories.size() + 1));
    }
  }
  ASSERT_TRUE(job.run(rules, std::move(batches)));
  for (const Memory& memory : memories) memory.expect_equal();
}

/// Batches of a few tensors, some equal, some with several segments.
std::vector<Case> cases_of(OperationKind kind, int ranks) {
  const bool reduces = kind == OperationKind::allreduce || kind == OperationKind::reducescatter;
  std::vector<Case> cases;
  for (const DType dtype : {DType::float32, DType::float16, DType::int64, DType::uint8})
    for (const double prescale : {1.0, 2.0}) {
      if (!reduces && prescale != 1.0) continue;
      Case made{.kind = kind, .dtype = dtype, .prescale = prescale};
      made.op = cases.size() % 3 == 2 ? ReduceOp::average : ReduceOp::sum;
      made.root = static_cast<int>(cases.size()) % ranks;
      made.shapes = {{5}, {5}, {1}, {700, 3}, {700, 3}, {3000}};
      if (kind == OperationKind::alltoall)
        for (Shape& shape : made.shapes) shape[0] *= ranks;
      cases.push_back(made);
    }
  return cases;
}

TEST(OverlappingRuns, ReadWhatWasThereBeforeAndStoreInTheOrderOfTheTensors) {
  for (const JobOptions& options : flat_jobs())
    for (const OperationKind kind :
         {OperationKind::allreduce, OperationKind::broadcast, OperationKind::allgather,
          OperationKind::alltoall, OperationKind::reducescatter})
      expect_equal(options, HostRules(), cases_of(kind, ranks_of(options)));
}

TEST(OverlappingRuns, AreTheSameByEveryAlgorithm) {
  for (int choice = 0; choice <= static_cast<int>(AlgorithmChoice::parameter_server); ++choice)
    for (const std::vector<int>& hosts : {std::vector{3}, {1, 1, 1}, {1, 1, 1, 1}, {2, 2}}) {
      const HostRules rules{.allreduce = {.choice = static_cast<AlgorithmChoice>(choice)}};
      expect_equal({.ranks_per_host = hosts}, rules,
                   cases_of(OperationKind::allreduce, ranks_of({.ranks_per_host = hosts})));
    }
}

TEST(OverlappingRuns, AreTheSameInLevels) {
  for (const JobOptions& options : level_jobs())
    for (const OperationKind kind : {OperationKind::allreduce, OperationKind::allgather})
      expect_equal(options, level_rules(), cases_of(kind, ranks_of(options)));
}

TEST(OverlappingRuns, AreTheSameForAdasum) {
  for (const JobOptions& options : flat_jobs()) {
    if (options.mpi_call_bytes > 0 ||
        !std::has_single_bit(static_cast<unsigned>(ranks_of(options))))
      continue;
    std::vector<Case> cases;
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16})
      cases.push_back({.dtype = dtype,
                       .op = ReduceOp::adasum,
                       .prescale = 2.0,
                       .shapes = {{5}, {5}, {700, 3}, {700, 3}, {40000}}});
    expect_equal(options, HostRules(), cases);
  }
}

TEST(OverlappingRuns, AreTheSameBesideARankThatHasJoined) {
  for (const JobOptions& options : flat_jobs()) {
    std::vector<Case> cases = cases_of(OperationKind::allreduce, ranks_of(options));
    for (Case& made : cases) made.joined_rank_0 = true;
    if (ranks_of(options) > 1) expect_equal(options, HostRules(), cases);
  }
}

TEST(OverlappingRuns, AreTheSameInAnyOrderOfTheRanks) {
  for (const uint64_t seed : sim::seeds(20))
    for (const std::vector<int>& hosts : {std::vector{2}, {1, 1}, {2, 1}})
      expect_equal({.ranks_per_host = hosts, .seed = seed}, HostRules(),
                   cases_of(OperationKind::allreduce, ranks_of({.ranks_per_host = hosts})));
}

}  // namespace
}  // namespace hvd::test
