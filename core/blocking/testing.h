// For tests: all ranks of a job in one thread, with calls by several algorithms.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/backend/host/testing.h"
#include "core/blocking/cross_memory_call.h"
#include "core/blocking/one_shot_call.h"
#include "core/group/host_segment.h"
#include "core/group/peer_memory.h"
#include "core/group/segment_memory.h"

namespace hvd::test {

/// A call in progress on one rank. Invoking it advances the call; destroying it gives the call up.
using UnderWay = std::function<Progress()>;
/// Runs `calls` consecutive calls on every rank. Ranks advance one step at a time in an order drawn
/// from `random`, and may be in different calls. `ended` is called after each call has been
/// destroyed. Returns false if no rank can make progress.
[[nodiscard]] bool take_turns(std::mt19937_64& random, size_t ranks, size_t calls,
                              const std::function<UnderWay(size_t rank, size_t call)>& begin,
                              const std::function<void(size_t rank, size_t call)>& ended = {});
using BeginCall = std::function<UnderWay(Group&, const TensorTask&)>;
/// Two ranks over links; the first gives up after `steps` steps of a call (allreduce, allgather, or
/// broadcast from the second). Expects that its peer gets the result and that the memory of the
/// first rank is not accessed afterwards.
void expect_an_orderly_end(const BeginCall& begin, OperationKind kind, int steps);

/// All ranks of a job, which make the same calls.
class Ranks {
 public:
  Ranks(int count, uint64_t seed) : count_(count), random_(seed) {}
  virtual ~Ranks() = default;
  int count() const { return count_; }
  std::mt19937_64& random() { return random_; }
  virtual SizeLimits limits() const = 0;

  /// Runs the calls `tasks[rank]` on all ranks. Returns false if no rank can make progress.
  [[nodiscard]] bool run(const std::vector<std::vector<TensorTask>>& tasks) {
    const auto begin_next = [&](size_t rank, size_t call) {
      return begin(static_cast<int>(rank), tasks[rank][call]);
    };
    if (!take_turns(random_, tasks.size(), tasks[0].size(), begin_next)) return false;
    end();
    return true;
  }

 private:
  virtual UnderWay begin(int rank, const TensorTask& task) = 0;
  virtual void end() {}  ///< called after all calls

  const int count_;
  std::mt19937_64 random_;
};

class OnAHost : public Ranks {
 public:
  OnAHost(int count, uint64_t seed)
      : Ranks(count, seed),
        layout_(SegmentLayout::of(count, 16 * KiB, 4096).with_eager_buffers()),
        memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < count; ++rank)
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
  }
  SizeLimits limits() const override { return OneShotCall::limits(slots(0)); }
  EagerBuffers& slots(int rank) const { return *segments_[rank]->eager_buffers(); }

 protected:
  UnderWay begin(int rank, const TensorTask& task) override {
    const auto call = std::make_shared<OneShotCall>(slots(rank), task);
    return [call] { return call->advance(); };
  }

 private:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
};

/// Calls by CMA, also larger ones in several pieces.
class Directly final : public OnAHost {
 public:
  Directly(int count, uint64_t seed)
      : OnAHost(count, seed), scratch_(CrossMemoryCall::kScratchBytes) {
    for (int rank = 0; rank < count; ++rank)
      memories_.push_back(std::make_unique<PeerMemory>(count));
    for (const auto& memory : memories_)
      for (int peer = 0; peer < count; ++peer)
        EXPECT_TRUE(memory->accept(peer, memories_[peer]->invitation()));
  }
  SizeLimits limits() const override {
    const auto ranks = static_cast<size_t>(count());
    return {.reduced = 4 * MiB / ranks,
            .gathered = 4 * MiB / ranks / ranks,
            .broadcast = 5 * MiB / ranks,
            .dealt = 4 * MiB / ranks};
  }
  std::unique_ptr<CrossMemoryCall> call(int rank, const TensorTask& task) {
    return call(rank, task, nobody_ends_);
  }
  std::unique_ptr<CrossMemoryCall> call(int rank, const TensorTask& task,
                                        const CrossMemoryCall::HasEnded& has_ended) {
    const MutableBytes scratch(scratch_.data(), scratch_.size());  // shared: there is one thread
    return std::make_unique<CrossMemoryCall>(slots(rank), *memories_[rank], has_ended, scratch,
                                             task);
  }

 private:
  UnderWay begin(int rank, const TensorTask& task) override {
    const std::shared_ptr<CrossMemoryCall> call = this->call(rank, task);
    return [this, call, rank, &task] {
      const Progress progress = call->advance();
      if (progress == Progress::done) spoil(task, rank);
      return progress;
    };
  }

  /// Saves the output, then overwrites input and output: a completed call must not use them.
  void spoil(const TensorTask& task, int rank) {
    const size_t bytes = output_bytes(task, rank, count());
    results_.push_back({task.output, {task.output, task.output + bytes}});
    std::fill_n(const_cast<std::byte*>(task.input), task.bytes(), std::byte{0xee});
    std::fill_n(task.output, bytes, std::byte{0xee});
  }
  void end() override {
    for (const auto& [place, bytes] : results_) std::ranges::copy(bytes, place);
  }

  const CrossMemoryCall::HasEnded nobody_ends_ = [](int) { return false; };
  std::vector<std::byte> scratch_;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> results_;
  std::vector<std::unique_ptr<PeerMemory>> memories_;
};

}  // namespace hvd::test
