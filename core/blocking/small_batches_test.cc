// Small batches give results bit-identical to the executor's with every algorithm: in shared memory
// and over links, with one and several tensors, and on a rank that has joined. Neither writes the
// memory of a root in place.
#include "core/blocking/small_batches.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <list>
#include <numeric>
#include <random>

#include "core/backend/host/testing.h"
#include "core/sim/seeds.h"

namespace hvd::test {
namespace {

/// Counts the batches that the short cut accepts.
class Counted final : public ShortCut {
 public:
  Counted(bool spare_cores, int& taken)
      : small_batches_({.spare_cores = spare_cores}), taken_(taken) {}
  std::unique_ptr<Run> start(HostBackend& backend, GroupLevels& groups, Batch& batch) override {
    auto run = small_batches_.start(backend, groups, batch);
    if (run) ++taken_;
    return run;
  }

 private:
  SmallBatches small_batches_;
  int& taken_;
};

/// Consecutive batches on all ranks, and their memory.
class Batches {
 public:
  Batches(int size, uint64_t seed, int count) : batches_(static_cast<size_t>(size)) {
    std::mt19937_64 random(seed);
    for (int sequence = 1; sequence <= count; ++sequence) add(sequence, random);
  }
  const std::vector<std::vector<Batch>>& all() const { return batches_; }
  /// The outputs of the ranks that have not joined.
  const std::list<ByteVector>& outputs() const { return outputs_; }

 private:
  void add(int sequence, std::mt19937_64& random) {
    const auto below = [&](uint64_t limit) { return random() % limit; };
    const int size = static_cast<int>(batches_.size());
    const bool reduces = below(3) > 0;
    Operation operation{.kind = reduces ? OperationKind::allreduce : OperationKind::broadcast,
                        .dtype = below(2) == 0 ? DType::float32 : DType::bfloat16,
                        .op = below(4) == 0 ? ReduceOp::max : ReduceOp::average,
                        .root = static_cast<int>(below(static_cast<uint64_t>(size)))};
    if (reduces && below(4) == 0) operation.prescale = 2.0;
    Batch batch{.sequence = static_cast<uint64_t>(sequence), .operation = operation};
    std::vector<Shape> shapes;
    for (uint64_t left = 1 + below(4); left > 0; --left)
      shapes.push_back({static_cast<int64_t>(below(below(2) == 0 ? 9 : 3000))});
    const bool one_has_joined = reduces && below(5) == 0;
    const int joined = one_has_joined ? static_cast<int>(below(static_cast<uint64_t>(size))) : -1;
    for (int rank = 0; rank < size; ++rank) {
      batch.tensors.clear();
      for (const Shape& shape : shapes)
        batch.tensors.push_back(tensor(batch, shape, rank == joined, random()));
      batches_[static_cast<size_t>(rank)].push_back(batch);
    }
  }

  BatchTensor tensor(const Batch& batch, const Shape& shape, bool joined, uint64_t seed) {
    BatchTensor made{.shape = shape};
    if (joined) return made;
    const DType dtype = batch.operation.dtype;
    const auto count = static_cast<size_t>(element_count(shape));
    made.input = inputs_.emplace_back(bytes_of(dtype, small_numbers(dtype, count, seed))).data();
    ByteVector& output = outputs_.emplace_back();
    output.reserve(1);  // a valid address even if it is empty
    output.resize(count * element_bytes(dtype));
    made.output = output.data();
    return made;
  }

  std::list<ByteVector> inputs_, outputs_;
  std::vector<std::vector<Batch>> batches_;
};

/// Bytes 0, 1, ... in pages that can only be read: a write ends the test.
class ReadOnly {
 public:
  explicit ReadOnly(size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    std::iota(data(), data() + bytes, uint8_t{0});
    EXPECT_EQ(::mprotect(memory_, bytes, PROT_READ), 0);
  }
  ~ReadOnly() { ::munmap(memory_, bytes_); }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;

  uint8_t* data() { return static_cast<uint8_t*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t bytes_;
};

struct JobKind {
  std::vector<int> ranks_per_host;
  size_t eager_bytes;
  bool spare_cores = false;
};

/// How many of `batches` the short cut of rank 0 accepted.
int run_by_short_cut(const JobKind& kind, uint64_t seed, const Batches& batches) {
  Job job({.ranks_per_host = kind.ranks_per_host, .seed = seed, .eager_bytes = kind.eager_bytes});
  std::vector<int> taken(static_cast<size_t>(job.size()));
  EXPECT_TRUE(job.run({}, batches.all(), [&](int rank) {
    return std::make_unique<Counted>(kind.spare_cores, taken[static_cast<size_t>(rank)]);
  }));
  for (const int of_rank : taken) EXPECT_EQ(of_rank, taken[0]);
  return taken[0];
}

TEST(SmallBatches, GiveTheBitsOfTheExecutor) {
  const std::vector<JobKind> kinds = {{{2}, 32 * KiB},       {{3}, 32 * KiB}, {{4}, 32 * KiB},
                                      {{4}, 32 * KiB, true}, {{8}, 16 * KiB}, {{1, 1}, 0},
                                      {{1, 1, 1, 1}, 0},     {{2, 2}, 0}};
  constexpr int kBatches = 60;
  for (const JobKind& kind : kinds) {
    const auto seed = static_cast<uint64_t>(kind.ranks_per_host.size() * 10 + kind.eager_bytes);
    const std::vector<int>& hosts = kind.ranks_per_host;
    const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
    SCOPED_TRACE(::testing::PrintToString(hosts));
    Batches fast(size, seed, kBatches), plain(size, seed, kBatches);
    Job job({.ranks_per_host = hosts, .seed = seed});
    ASSERT_TRUE(job.run({}, plain.all()));
    const int taken = run_by_short_cut(kind, seed, fast);
    EXPECT_GT(taken, kBatches / 5);
    EXPECT_EQ(fast.outputs(), plain.outputs());
  }
}

/// A broadcast in place of consecutive tensors of these bytes.
Batch broadcast_of(uint8_t* memory, const std::vector<int64_t>& lengths) {
  Batch made{.sequence = 1, .operation = {.kind = OperationKind::broadcast}};
  for (const int64_t length : lengths) {
    auto* const at = reinterpret_cast<std::byte*>(memory);
    made.tensors.push_back({.input = at, .output = at, .shape = {length}});
    memory += length;
  }
  return made;
}

TEST(SmallBatches, DoNotWriteTheMemoryOfARootInPlace) {
  constexpr size_t kBytes = 64 * KiB;
  ReadOnly sent(kBytes);
  const std::vector<JobKind> kinds = {
      {{2}, 32 * KiB}, {{4}, 32 * KiB, true}, {{1, 1}, 0}, {{2, 2}, 0}, {{2}, 0}};
  for (const JobKind& kind : kinds) {
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{100}, {100, 9, 60}, {30000}, {9000, 1, 20000}}) {
      SCOPED_TRACE(::testing::PrintToString(kind.ranks_per_host) +
                   ::testing::PrintToString(lengths));
      Job job({.ranks_per_host = kind.ranks_per_host, .eager_bytes = kind.eager_bytes});
      std::vector<std::vector<uint8_t>> received(static_cast<size_t>(job.size()) - 1,
                                                 std::vector<uint8_t>(kBytes));
      std::vector<std::vector<Batch>> batches{{broadcast_of(sent.data(), lengths)}};
      for (auto& memory : received) batches.push_back({broadcast_of(memory.data(), lengths)});
      int taken = 0;
      ASSERT_TRUE(job.run({}, batches,
                          [&](int) { return std::make_unique<Counted>(kind.spare_cores, taken); }));
      const auto total = static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), 0L));
      for (const auto& memory : received)
        EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + total, sent.data()));
    }
  }
}

TEST(SmallBatches, LeaveWhatIsLargeOrMovesOtherwise) {
  Job job({.ranks_per_host = {2}, .eager_bytes = 4 * KiB});
  HostBackend backend({});
  SmallBatches small({});
  std::array<std::byte, 16 * KiB> memory{};
  const auto takes = [&](OperationKind kind, ReduceOp op, int64_t bytes) {
    Batch batch{.sequence = 1, .operation = {.kind = kind, .op = op}};
    batch.tensors.push_back({.input = memory.data(), .output = memory.data(), .shape = {bytes}});
    return small.start(backend, job.groups(0), batch) != nullptr;
  };
  EXPECT_TRUE(takes(OperationKind::allreduce, ReduceOp::sum, 2 * KiB));
  EXPECT_FALSE(takes(OperationKind::allreduce, ReduceOp::sum, 2 * KiB + 1));
  EXPECT_FALSE(takes(OperationKind::allreduce, ReduceOp::sum, 0));
  EXPECT_FALSE(takes(OperationKind::allreduce, ReduceOp::adasum, 8));
  EXPECT_TRUE(takes(OperationKind::broadcast, ReduceOp::sum, 4 * KiB));
  EXPECT_FALSE(takes(OperationKind::reducescatter, ReduceOp::sum, 8));
  EXPECT_FALSE(takes(OperationKind::alltoall, ReduceOp::sum, 8));
}

TEST(SmallBatches, PackFewBytesOnly) {
  Job job({.ranks_per_host = {2}, .eager_bytes = 64 * KiB});
  HostBackend backend({});
  SmallBatches small({});
  std::array<std::byte, 8 * KiB> memory{};
  const auto takes_two_of = [&](int64_t bytes) {
    Batch batch{.sequence = 1};
    for (std::byte* at : {memory.data(), memory.data() + 4 * KiB})
      batch.tensors.push_back({.input = at, .output = at, .shape = {bytes}});
    return small.start(backend, job.groups(0), batch) != nullptr;
  };
  EXPECT_TRUE(takes_two_of(2 * KiB));
  EXPECT_FALSE(takes_two_of(2 * KiB + 1));
}

TEST(SmallBatches, RunsTellTheirWayAndTheAlgorithmIfTheyFollowOne) {
  ByteVector memory(64 * KiB);
  const auto route_of = [&](const JobOptions& options, OperationKind kind, int64_t elements) {
    Job job(options);
    HostBackend backend({});
    SmallBatches small_batches({});
    Batch batch{.sequence = 1, .operation = {.kind = kind, .dtype = DType::float32}};
    batch.tensors = {{.input = memory.data(), .output = memory.data(), .shape = {elements}}};
    return small_batches.start(backend, job.groups(0), batch)->route();
  };
  const JobOptions links{.ranks_per_host = {1, 1, 1, 1}};
  EXPECT_EQ(route_of(links, OperationKind::allreduce, 1),
            (Route{.way = Way::phased_links, .algorithm = Algorithm::recursive_doubling}));
  EXPECT_EQ(route_of(links, OperationKind::broadcast, 1), Route{.way = Way::one_shot_links});
  EXPECT_EQ(route_of({.ranks_per_host = {2}, .eager_bytes = 4 * KiB}, OperationKind::broadcast, 1),
            Route{.way = Way::one_shot});
}

}  // namespace
}  // namespace hvd::test
