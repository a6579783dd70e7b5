// Operations as one exchange, within a host, over links, and straight from tensor to tensor, give
// the bits that the executor gives. All ranks in one thread, a step of one at a time, in an order
// drawn from a seed.
#include "core/backend/host/eager_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/claimed_call.h"
#include "core/backend/host/direct_call.h"
#include "core/backend/host/divided_call.h"
#include "core/backend/host/eager_link_call.h"
#include "core/backend/host/testing.h"

namespace hvd::testing {
namespace {

/// All ranks of a job that are to make the same calls.
class Ranks {
 public:
  Ranks(int count, uint64_t seed) : count_(count), random_(seed) {}
  virtual ~Ranks() = default;
  int count() const { return count_; }
  std::mt19937_64& random() { return random_; }
  virtual EagerLimits limits() const = 0;

  /// `tasks[rank]` is a row of calls. False when nobody can go on.
  [[nodiscard]] bool run(const std::vector<std::vector<EagerTask>>& tasks) {
    const auto begin_next = [&](size_t rank, size_t call) {
      return begin(static_cast<int>(rank), tasks[rank][call]);
    };
    if (!take_turns(random_, tasks.size(), tasks[0].size(), begin_next)) return false;
    end();
    return true;
  }

 private:
  virtual UnderWay begin(int rank, const EagerTask& task) = 0;
  virtual void end() {}  ///< all calls are done

  const int count_;
  std::mt19937_64 random_;
};

class OnAHost : public Ranks {
 public:
  OnAHost(int count, uint64_t seed)
      : Ranks(count, seed),
        layout_(SegmentLayout::of(count, 16 * KiB, 4096).with_eager_slots()),
        memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < count; ++rank)
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
  }
  EagerLimits limits() const override { return EagerCall::limits(slots(0)); }
  EagerSlots& slots(int rank) const { return *segments_[rank]->eager_slots(); }

 protected:
  UnderWay begin(int rank, const EagerTask& task) override {
    const auto call = std::make_shared<EagerCall>(slots(rank), task);
    return [call] { return call->advance(); };
  }

 private:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
};

/// Allreduces as a `Call`, between others.
template <class Call>
class Reducing final : public OnAHost {
 public:
  using OnAHost::OnAHost;

 private:
  UnderWay begin(int rank, const EagerTask& task) override {
    if (task.transfer != Transfer::allreduce) return OnAHost::begin(rank, task);
    const auto call = std::make_shared<Call>(slots(rank), task);
    return [call] { return call->advance(); };
  }
};

/// Larger ones, too: in several pieces.
class Directly final : public OnAHost {
 public:
  Directly(int count, uint64_t seed) : OnAHost(count, seed), scratch_(DirectCall::kScratchBytes) {
    for (int rank = 0; rank < count; ++rank)
      memories_.push_back(std::make_unique<PeerMemory>(count));
    for (const auto& memory : memories_)
      for (int peer = 0; peer < count; ++peer)
        EXPECT_TRUE(memory->accept(peer, memories_[peer]->invitation()));
  }
  EagerLimits limits() const override {
    const auto ranks = static_cast<size_t>(count());
    return {.reduced = 4 * MiB / ranks,
            .gathered = 4 * MiB / ranks / ranks,
            .broadcast = 5 * MiB / ranks,
            .dealt = 4 * MiB / ranks};
  }
  std::unique_ptr<DirectCall> call(int rank, const EagerTask& task) {
    return call(rank, task, nobody_ends_);
  }
  std::unique_ptr<DirectCall> call(int rank, const EagerTask& task,
                                   const DirectCall::HasEnded& has_ended) {
    const MutableBytes scratch(scratch_.data(), scratch_.size());  // one thread: one for all
    return std::make_unique<DirectCall>(slots(rank), *memories_[rank], has_ended, scratch, task);
  }

 private:
  UnderWay begin(int rank, const EagerTask& task) override {
    const std::shared_ptr<DirectCall> call = this->call(rank, task);
    return [this, call, rank, &task] {
      const Run::Progress progress = call->advance();
      if (progress == Run::Progress::done) spoil(task, rank);
      return progress;
    };
  }

  /// What a call has read and made is nobody's affair once it is done.
  void spoil(const EagerTask& task, int rank) {
    const size_t bytes = output_bytes(task, rank, count());
    results_.push_back({task.output, {task.output, task.output + bytes}});
    std::fill_n(const_cast<std::byte*>(task.input), task.bytes(), std::byte{0xee});
    std::fill_n(task.output, bytes, std::byte{0xee});
  }
  void end() override {
    for (const auto& [place, bytes] : results_) std::ranges::copy(bytes, place);
  }

  const DirectCall::HasEnded nobody_ends_ = [](int) { return false; };
  std::vector<std::byte> scratch_;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> results_;
  std::vector<std::unique_ptr<PeerMemory>> memories_;
};

/// A link delivers what is sent in pieces of random lengths.
class OverLinks final : public Ranks {
 public:
  OverLinks(int count, uint64_t seed)
      : Ranks(count, seed),
        job_({.ranks_per_host = std::vector<int>(static_cast<size_t>(count), 1), .seed = seed}),
        sequences_(static_cast<size_t>(count)) {}
  /// Also for what more than two ranks do by other ways.
  EagerLimits limits() const override { return EagerLinkCall::limits(2); }

 private:
  UnderWay begin(int rank, const EagerTask& task) override {
    const auto call =
        std::make_shared<EagerLinkCall>(*job_.groups(rank).all, ++sequences_[rank], task);
    return [call] { return call->advance(); };
  }

  Job job_;
  std::vector<uint64_t> sequences_;
};

/// One operation on all ranks, to be run both ways.
struct Drawn {
  EagerTask task;
  std::vector<ByteVector> inputs;             // [rank]
  std::vector<ByteVector> outputs, expected;  // [rank]
  bool in_place = false;
};

Drawn draw(Ranks& all) {
  std::mt19937_64& random = all.random();
  const EagerLimits limits = all.limits();
  const auto ranks = static_cast<size_t>(all.count());
  Drawn drawn;
  EagerTask& task = drawn.task;
  task.transfer = static_cast<Transfer>(random() % 5);
  task.dtype = static_cast<DType>(random() % (static_cast<size_t>(kLastDType) + 1));
  const bool reduces = task.reduces();
  if (reduces && (task.dtype == DType::boolean || task.dtype == DType::uint16))
    task.dtype = DType::float32;
  if (task.transfer == Transfer::reducescatter && random() % 2 == 0) task.op = ReduceOp::average;
  if (task.transfer == Transfer::allreduce)
    task.op = std::vector{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                          ReduceOp::product}[random() % 5];
  if (reduces && random() % 3 == 0) task.postscale = 3.0;
  if (reduces && limits.prescales && random() % 3 == 0) task.prescale = 0.5;
  task.root = static_cast<int>(random() % ranks);
  task.row_bytes = element_bytes(task.dtype) * (1 + random() % 5);
  const size_t most_rows = limits.of(task.transfer) / task.row_bytes;
  task.rows = 1 + random() % (random() % 4 == 0 ? most_rows : std::min<size_t>(most_rows, 12));
  if (task.transfer == Transfer::alltoall)
    task.rows = std::max(task.rows / ranks, size_t{1}) * ranks;
  const bool same_size =
      task.transfer == Transfer::allreduce || task.transfer == Transfer::broadcast;
  drawn.in_place = same_size && random() % 2 == 0;
  for (int rank = 0; rank < all.count(); ++rank) {
    drawn.inputs.push_back(bytes_of(
        task.dtype, small_numbers(task.dtype, task.bytes() / element_bytes(task.dtype), random())));
    drawn.outputs.emplace_back(output_bytes(task, rank, all.count()));
    drawn.expected.emplace_back(drawn.outputs.back().size());
  }
  return drawn;
}

Batch batch_of(Drawn& drawn, int rank, uint64_t sequence, int ranks) {
  const EagerTask& task = drawn.task;
  Batch batch{.sequence = sequence,
              .transfer = task.transfer,
              .dtype = task.dtype,
              .op = task.op,
              .prescale = task.prescale,
              .postscale = task.postscale,
              .root = task.root};
  BatchTensor& tensor = batch.tensors.emplace_back();
  tensor.input = drawn.inputs[rank].data();
  tensor.output = drawn.expected[rank].data();
  tensor.shape = {static_cast<int64_t>(task.rows),
                  static_cast<int64_t>(task.row_bytes / element_bytes(task.dtype))};
  if (task.transfer == Transfer::alltoall)
    tensor.splits.assign(static_cast<size_t>(ranks), static_cast<int32_t>(task.rows) / ranks);
  return batch;
}

EagerTask task_of(Drawn& drawn, int rank) {
  EagerTask task = drawn.task;
  task.output = drawn.outputs[rank].data();
  if (drawn.in_place) drawn.outputs[rank] = drawn.inputs[rank];
  task.input = drawn.in_place ? task.output : drawn.inputs[rank].data();
  return task;
}

/// Runs `count` operations in a row both ways and compares all outputs.
template <class Kind>
void expect_the_executors_bits(int ranks, uint64_t seed, int count) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, seed " << seed);
  Kind all(ranks, seed);
  Job job({.ranks_per_host = {ranks}, .seed = seed});
  std::vector<Drawn> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(draw(all));
  std::vector<std::vector<Batch>> batches(static_cast<size_t>(ranks));
  std::vector<std::vector<EagerTask>> tasks(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < count; ++i) {
      batches[rank].push_back(batch_of(drawn[i], rank, static_cast<uint64_t>(i + 1), ranks));
      tasks[rank].push_back(task_of(drawn[i], rank));
    }
  ASSERT_TRUE(job.run({.allreduce = {.deterministic = true}}, std::move(batches)));
  ASSERT_TRUE(all.run(tasks));
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(::testing::Message()
                 << "operation " << i << ": transfer " << static_cast<int>(drawn[i].task.transfer)
                 << " of " << name_of(drawn[i].task.dtype) << ", op " << name_of(drawn[i].task.op)
                 << ", " << drawn[i].task.bytes() << " bytes");
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(drawn[i].outputs[rank], drawn[i].expected[rank]) << "rank " << rank;
  }
}

TEST(EagerCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (uint64_t seed = 1; seed <= 20; ++seed) expect_the_executors_bits<OnAHost>(ranks, seed, 15);
}

TEST(EagerCall, ServesAsManyRanksAsItSays) {
  expect_the_executors_bits<OnAHost>(EagerSlots::kMostRanks, 1, 10);
}

TEST(DividedCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (uint64_t seed = 1; seed <= 20; ++seed)
      expect_the_executors_bits<Reducing<DividedCall>>(ranks, seed, 15);
}

TEST(DividedCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Reducing<DividedCall>>(EagerSlots::kMostRanks, 1, 10);
}

TEST(ClaimedCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (uint64_t seed = 1; seed <= 20; ++seed)
      expect_the_executors_bits<Reducing<ClaimedCall>>(ranks, seed, 15);
}

TEST(ClaimedCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Reducing<ClaimedCall>>(EagerSlots::kMostRanks, 1, 10);
}

TEST(DirectCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (uint64_t seed = 1; seed <= 6; ++seed) expect_the_executors_bits<Directly>(ranks, seed, 15);
}

TEST(DirectCall, ServesAsManyRanksAsThereAreSlots) {
  expect_the_executors_bits<Directly>(EagerSlots::kMostRanks, 1, 3);
}

TEST(EagerLinkCall, GivesTheBitsOfTheExecutor) {
  for (const int ranks : {2, 3, 4, 8})
    for (uint64_t seed = 1; seed <= 6; ++seed)
      expect_the_executors_bits<OverLinks>(ranks, seed, 15);
}

TEST(EagerLinkCall, ServesAsManyRanksAsItSays) {
  EXPECT_GT(EagerLinkCall::limits(64).dealt, 0u);
  EXPECT_EQ(EagerLinkCall::limits(65).dealt, 0u);
  EXPECT_EQ(EagerLinkCall::limits(1).dealt, 0u);
  expect_the_executors_bits<OverLinks>(64, 1, 2);
}

TEST(EagerLinkCall, LeavesToPlansWhatRanksPassOn) {
  const auto reduces = [](int ranks) { return EagerLinkCall::limits(ranks).reduced > 0; };
  const auto gathers = [](int ranks) { return EagerLinkCall::limits(ranks).gathered > 0; };
  const auto broadcasts = [](int ranks) { return EagerLinkCall::limits(ranks).broadcast > 0; };
  EXPECT_TRUE(reduces(2) && gathers(2) && broadcasts(2));
  EXPECT_FALSE(reduces(3) || gathers(3));
  EXPECT_TRUE(broadcasts(3) && broadcasts(4));
  EXPECT_FALSE(broadcasts(5));
}

TEST(EagerLinkCall, GivenUpLeavesMemoryAlone) {
  const auto begin = [](Group& group, const EagerTask& task) -> UnderWay {
    const auto call = std::make_shared<EagerLinkCall>(group, 1, task);
    return [call] { return call->advance(); };
  };
  for (const Transfer transfer : {Transfer::allreduce, Transfer::allgather, Transfer::broadcast})
    for (const int steps : {1, 2, 4}) expect_an_orderly_end(begin, transfer, steps);
}

template <class Kind>
void expect_no_overtaking() {
  Kind all(3, 7);
  constexpr int kCalls = 50;
  std::vector<uint64_t> sent(kCalls);
  std::vector<std::vector<uint64_t>> got(3, std::vector<uint64_t>(kCalls));
  std::vector<std::vector<EagerTask>> tasks(3);
  for (int i = 0; i < kCalls; ++i) {
    sent[i] = static_cast<uint64_t>(i) * 1000;
    for (int rank = 0; rank < 3; ++rank)
      tasks[rank].push_back({.transfer = Transfer::broadcast,
                             .dtype = DType::int64,
                             .input = reinterpret_cast<std::byte*>(&sent[i]),
                             .output = reinterpret_cast<std::byte*>(&got[rank][i]),
                             .rows = 1,
                             .row_bytes = sizeof(uint64_t)});
  }
  ASSERT_TRUE(all.run(tasks));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(got[rank], sent);
}

TEST(EagerCall, BroadcastsFromOneRootDoNotOvertakeTheirReaders) { expect_no_overtaking<OnAHost>(); }

/// One rank gives up after so many steps; its memory changes. Nobody believes in what he has read,
/// nor writes there any more.
void expect_changed_memory_is_let_alone(Transfer transfer, int root, int steps) {
  SCOPED_TRACE(::testing::Message() << "transfer " << static_cast<int>(transfer) << ", root "
                                    << root << ", given up after " << steps << " steps");
  constexpr size_t kElements = 900000, kRanks = 3;  // a part is more than a piece
  Directly all(static_cast<int>(kRanks), 1);
  std::vector<std::unique_ptr<DirectCall>> calls;
  std::vector<std::vector<int32_t>> in(kRanks, std::vector<int32_t>(kElements, 1));
  std::vector<std::vector<int32_t>> out(kRanks, std::vector<int32_t>(kRanks * kElements));
  std::vector<EagerTask> tasks;
  for (size_t rank = 0; rank < kRanks; ++rank)
    tasks.push_back({.transfer = transfer,
                     .dtype = DType::int32,
                     .root = root,
                     .input = reinterpret_cast<std::byte*>(in[rank].data()),
                     .output = reinterpret_cast<std::byte*>(out[rank].data()),
                     .rows = kElements,
                     .row_bytes = sizeof(int32_t)});
  for (size_t rank = 0; rank < kRanks; ++rank)
    calls.push_back(all.call(static_cast<int>(rank), tasks[rank]));
  for (int step = 0; step < steps; ++step) {
    ASSERT_NE(calls[2]->advance(), Run::Progress::done);
    if (step % 2 == 0) calls[0]->advance();
    if (step == 0) calls[1]->advance();
  }
  calls[2].reset();
  std::ranges::fill(in[2], 99);
  std::ranges::fill(out[2], 99);
  for (int turn = 0; turn < 100; ++turn)
    for (const size_t rank : {size_t{0}, size_t{1}})
      ASSERT_NE(calls[rank]->advance(), Run::Progress::done);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    ASSERT_TRUE(calls[rank]->trouble());
    EXPECT_EQ(calls[rank]->trouble()->rank, 2);
    EXPECT_EQ(calls[rank]->trouble()->error, 0);
  }
  for (const auto& memory : {in[2], out[2]})
    EXPECT_TRUE(std::ranges::all_of(memory, [](int32_t value) { return value == 99; }));
}

TEST(DirectCall, GivenUpByOneGivesNobodyAResult) {
  for (const Transfer transfer : {Transfer::allreduce, Transfer::allgather, Transfer::alltoall,
                                  Transfer::reducescatter, Transfer::broadcast})
    for (const int root : {0, 2})
      for (const int steps : {1, 2, 3, 4, 5})
        expect_changed_memory_is_let_alone(transfer, root, steps);
}

TEST(DirectCall, GivenUpWaitsForWhoWritesUnlessThatRankHasEnded) {
  Directly all(2, 1);
  std::vector<int32_t> numbers(1000);
  auto* const memory = reinterpret_cast<std::byte*>(numbers.data());
  const EagerTask task{.dtype = DType::int32,
                       .input = memory,
                       .output = memory,
                       .rows = numbers.size(),
                       .row_bytes = sizeof(int32_t)};
  std::unique_ptr<DirectCall> call = all.call(1, task);
  ASSERT_NE(call->advance(), Run::Progress::done);
  ASSERT_TRUE(all.slots(0).begin_writing());
  std::atomic<bool> is_back = false;
  std::jthread leaver([&] {
    call.reset();
    is_back = true;
  });
  while (all.slots(0).who_has_given_up() < 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_back);
  all.slots(0).end_writing();
  leaver.join();

  Directly others(2, 1);
  ASSERT_TRUE(others.slots(0).begin_writing());  // and is killed
  const DirectCall::HasEnded all_end = [](int) { return true; };
  others.call(1, task, all_end).reset();
}

TEST(EagerLinkCall, BroadcastsFromOneRootKeepTheirOrder) { expect_no_overtaking<OverLinks>(); }

}  // namespace
}  // namespace hvd::testing
