// Compares allgather, also in levels, and alltoall with a single process that has all inputs.
#include <gtest/gtest.h>

#include <list>
#include <random>

#include "core/backend/host/testing.h"
#include "core/kernel/reference.h"

namespace hvd::test {
namespace {

/// Rows of dim 0 in which each element encodes its source.
ByteVector rows_from(DType dtype, int from, int64_t rows, int64_t row_elements) {
  Numbers numbers;
  for (int64_t i = 0; i < rows * row_elements; ++i)
    numbers.push_back(dtype == DType::boolean ? static_cast<double>((from + i) % 2)
                                              : static_cast<double>((from * 13 + i) % 120));
  return bytes_of(dtype, numbers);
}

void append(ByteVector& to, const ByteVector& from) {
  to.insert(to.end(), from.begin(), from.end());
}

struct Case {
  OperationKind kind = OperationKind::allgather;
  DType dtype = DType::float32;
  /// Every rank has the same number of rows and outputs are provided: no exchange of row counts.
  bool equal = false;
  bool uneven_splits = true;  ///< alltoall; false: no splits
  int64_t scale = 1;          ///< factor for the numbers of rows
};

/// Several tensors per rank and batch: inputs and expected outputs.
class Memory {
 public:
  static constexpr size_t kTensors = 3;
  static constexpr std::array<int64_t, kTensors> kRowElements = {1, 3, 0};

  Memory(const Case& c, int size, uint64_t seed)
      : case_(c), size_(size), random_(seed), ranks_(static_cast<size_t>(size)) {
    for (auto& tensors : ranks_) tensors.resize(kTensors);
    for (size_t tensor = 0; tensor < kTensors; ++tensor)
      c.kind == OperationKind::allgather ? fill_gather(tensor) : fill_alltoall(tensor);
  }

  Batch batch(int rank, uint64_t sequence) {
    Batch made{.sequence = sequence, .operation = {.kind = case_.kind, .dtype = case_.dtype}};
    for (size_t i = 0; i < kTensors; ++i) {
      Tensor& mine = ranks_[rank][i];
      BatchTensor& tensor = made.tensors.emplace_back();
      tensor.input = mine.input.data();
      tensor.shape = {mine.rows, kRowElements[i]};
      tensor.splits = mine.splits;
      if (case_.kind == OperationKind::alltoall) tensor.received_splits = &mine.received_splits;
      if (case_.equal) {
        mine.output.resize(mine.expected.size());
        tensor.output = mine.output.data();
      } else {
        tensor.gathered = &mine.gathered;
      }
    }
    return made;
  }

  void expect_right() {
    SCOPED_TRACE(::testing::Message() << name_of(case_.dtype) << ", equal " << case_.equal
                                      << ", uneven splits " << case_.uneven_splits);
    for (int rank = 0; rank < size_; ++rank)
      for (size_t i = 0; i < kTensors; ++i) {
        SCOPED_TRACE(::testing::Message() << "rank " << rank << " tensor " << i);
        expect_right(ranks_[rank][i], i);
      }
  }

 private:
  struct Tensor {
    int64_t rows = 0;
    ByteVector input, output, expected;
    std::vector<int32_t> splits, expected_splits;
    int64_t expected_rows = 0;
    Gathered gathered, received_splits;
  };

  void expect_right(const Tensor& tensor, size_t i) const {
    const std::byte* data = tensor.output.data();
    if (!case_.equal) {
      ASSERT_EQ(tensor.gathered.shape, (Shape{tensor.expected_rows, kRowElements[i]}));
      ASSERT_EQ(tensor.gathered.memory.size(), tensor.expected.size());
      data = tensor.gathered.memory.data();
    }
    ASSERT_EQ(ByteVector(data, data + tensor.expected.size()), tensor.expected);
    if (case_.kind != OperationKind::alltoall) return;
    ASSERT_EQ(tensor.received_splits.shape, Shape{size_});
    const auto* received = reinterpret_cast<const int32_t*>(tensor.received_splits.memory.data());
    ASSERT_EQ(std::vector<int32_t>(received, received + size_), tensor.expected_splits);
  }

  void fill_gather(size_t i) {
    ByteVector all;
    int64_t rows = 0;
    for (int rank = 0; rank < size_; ++rank) {
      Tensor& tensor = ranks_[rank][i];
      tensor.rows = (case_.equal ? 4 : static_cast<int64_t>(random_() % 5)) * case_.scale;
      tensor.input = rows_from(case_.dtype, rank, tensor.rows, kRowElements[i]);
      append(all, tensor.input);
      rows += tensor.rows;
    }
    for (auto& tensors : ranks_) {
      tensors[i].expected = all;
      tensors[i].expected_rows = rows;
    }
  }

  void fill_alltoall(size_t i) {
    for (int from = 0; from < size_; ++from) {
      Tensor& sender = ranks_[from][i];
      const int64_t equal_rows = (case_.equal ? 2 : from % 3) * case_.scale;
      for (int to = 0; to < size_; ++to) {
        const bool uneven = !case_.equal && case_.uneven_splits;
        const int64_t rows =
            uneven ? static_cast<int64_t>(random_() % 4) * case_.scale : equal_rows;
        const ByteVector part = rows_from(case_.dtype, from * size_ + to, rows, kRowElements[i]);
        append(sender.input, part);
        sender.rows += rows;
        if (uneven) sender.splits.push_back(static_cast<int32_t>(rows));
        Tensor& receiver = ranks_[to][i];
        append(receiver.expected, part);
        receiver.expected_rows += rows;
        receiver.expected_splits.push_back(static_cast<int32_t>(rows));
      }
      if (!sender.splits.empty()) add_tail(sender, i);
    }
  }

  /// Rows after the last split, which are not sent.
  void add_tail(Tensor& tensor, size_t i) {
    append(tensor.input, rows_from(case_.dtype, 99, 2, kRowElements[i]));
    tensor.rows += 2;
  }

  Case case_;
  int size_;
  std::mt19937_64 random_;
  std::vector<std::vector<Tensor>> ranks_;  // [rank, tensor]
};

void expect_right(const JobOptions& options, const HostRules& rules,
                  const std::vector<Case>& cases) {
  SCOPED_TRACE(name_of(options));
  Job job(options);
  std::list<Memory> memories;
  std::vector<std::vector<Batch>> batches(static_cast<size_t>(job.size()));
  for (const Case& c : cases) {
    Memory& memory = memories.emplace_back(c, job.size(), options.seed + memories.size());
    for (int rank = 0; rank < job.size(); ++rank)
      batches[rank].push_back(memory.batch(rank, memories.size()));
  }
  ASSERT_TRUE(job.run(rules, std::move(batches)));
  for (Memory& memory : memories) memory.expect_right();
}

std::vector<Case> moves(OperationKind kind) {
  std::vector<Case> cases;
  for (const DType dtype : all_types()) {
    cases.push_back({.kind = kind, .dtype = dtype});
    cases.push_back({.kind = kind, .dtype = dtype, .equal = true});
    if (kind == OperationKind::alltoall)
      cases.push_back({.kind = kind, .dtype = dtype, .uneven_splits = false});
  }
  cases.push_back({.kind = kind, .scale = 200});
  cases.push_back({.kind = kind, .equal = true, .scale = 200});
  return cases;
}

TEST(GatherRun, PutsTheRowsOfAllRanksInTheirOrder) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), moves(OperationKind::allgather));
}

TEST(GatherRun, TakesSeveralSegments) {
  const Case large{.scale = 100000};
  expect_right({.ranks_per_host = {1, 1}}, HostRules(), {large, large});
  expect_right({.ranks_per_host = {3}}, HostRules(), {large, large});
}

TEST(GatherInLevels, PutsTheRowsOfAllRanksInTheirOrder) {
  for (const JobOptions& options : level_jobs())
    expect_right(options, level_rules(), moves(OperationKind::allgather));
}

TEST(GatherInLevels, TakesSeveralSegmentsWhereHostsNeedDifferentlyMany) {
  const Case large{.scale = 20000};
  for (const uint64_t seed : {1, 2, 3})
    expect_right({.ranks_per_host = {2, 2}, .seed = seed, .levels = true}, level_rules(),
                 {large, large, large});
}

TEST(AlltoallRun, GivesEveryRankWhatOthersHaveForIt) {
  for (const JobOptions& options : flat_jobs())
    expect_right(options, HostRules(), moves(OperationKind::alltoall));
}

TEST(AlltoallRun, TakesSeveralSegments) {
  const Case large{.kind = OperationKind::alltoall, .scale = 50000};
  expect_right({.ranks_per_host = {1, 1, 1}}, HostRules(), {large, large});
  expect_right({.ranks_per_host = {3}}, HostRules(), {large, large});
  expect_right({.ranks_per_host = {2, 1}}, HostRules(), {large, large});
}

TEST(AlltoallRun, WorksForManyRanks) {
  const Case small{.kind = OperationKind::alltoall};
  expect_right({.ranks_per_host = {100}}, HostRules(), {small});
  expect_right({.ranks_per_host = std::vector<int>(40, 1)}, HostRules(), {small});
}

}  // namespace
}  // namespace hvd::test
