// Posted receives of the executor over links: directly into the tensors whenever possible.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/collective/executor.h"
#include "core/collective/executor_testing.h"
#include "core/group/group.h"

namespace hvd {
namespace {

/// One rank whose peers send zeros at once; records the posted receives.
class Expected final : public Group {
 public:
  struct Landing {
    Parcel from;
    MutableBytes target;
  };

  Expected(int rank, int size) : rank_(rank), size_(size), zeros_(kUnitBytes) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool shared_memory() const override { return false; }
  size_t unit_bytes() const override { return kUnitBytes; }
  uint32_t units_in_flight() const override { return 2; }
  std::optional<MutableBytes> reserve(Ticket, size_t bytes) override {
    return MutableBytes(zeros_).first(bytes);
  }
  void publish(Ticket, std::span<const Parcel>) override {}
  std::optional<ConstBytes> view(Ticket, const Parcel& from) override {
    return ConstBytes(zeros_).first(from.bytes);
  }
  void release(Ticket) override {}
  bool in_place() const override { return true; }
  void publish_loans(Ticket, std::span<const Loan>) override {}
  void land(Ticket, const Parcel& from, MutableBytes target) override {
    landings.push_back({from, target});
  }
  bool pump() override { return false; }

  std::vector<Landing> landings{};

 private:
  static constexpr size_t kUnitBytes = 4 * KiB;
  const int rank_, size_;
  ByteVector zeros_;
};

/// Returns the receives that rank `rank` posts in `pieces` for `plan`.
std::vector<Expected::Landing> landings_in(std::vector<ByteVector>& pieces, int rank, int size,
                                           std::shared_ptr<const Plan> plan) {
  Expected group(rank, size);
  Work work;
  for (ByteVector& piece : pieces) work.output.add(piece.data(), piece.size());
  work.input = work.output;
  work.dtype = DType::float32;
  work.plan = std::move(plan);
  Executor executor(group, std::move(work));
  while (executor.advance() != Progress::done) continue;
  return group.landings;
}

/// For an allreduce by halving and doubling, in segments of 8 KiB.
std::vector<Expected::Landing> landings_in(std::vector<ByteVector>& pieces, int rank, int size) {
  size_t bytes = 0;
  for (const ByteVector& piece : pieces) bytes += piece.size();
  return landings_in(pieces, rank, size,
                     split_plan(halving_doubling_allreduce(rank, size), bytes, 8 * KiB, 4));
}

using Places = std::vector<std::pair<size_t, size_t>>;  ///< begin and end

/// Returns the positions of the targets in `tensor`, in order.
Places places_in(const ByteVector& tensor, const std::vector<Expected::Landing>& landings) {
  Places places;
  for (const auto& [from, target] : landings) {
    if (target.empty()) continue;  // to be reduced or copied
    EXPECT_EQ(target.size(), from.bytes);
    const auto begin = static_cast<size_t>(target.data() - tensor.data());
    places.emplace_back(begin, begin + target.size());
  }
  std::ranges::sort(places);
  return places;
}

TEST(Executor, SumsOfOthersLandInATensorInOnePiece) {
  constexpr size_t kSegment = 8 * KiB, kChunk = 2 * KiB;
  std::vector<ByteVector> tensor{ByteVector(3 * kSegment)};
  // For each segment, the chunk reduced by a neighbour, and two others.
  Places first, third;
  for (size_t begin = 0; begin < tensor[0].size(); begin += kSegment) {
    const size_t half = begin + 2 * kChunk, end = begin + kSegment;
    first.insert(first.end(), {{begin + kChunk, half}, {half, end}});
    third.insert(third.end(), {{begin, begin + kChunk}, {half, end}});
  }
  EXPECT_EQ(places_in(tensor[0], landings_in(tensor, 0, 4)), first);
  EXPECT_EQ(places_in(tensor[0], landings_in(tensor, 2, 4)), third);
}

TEST(Executor, SumsThatBelongToTwoTensorsLandInNeither) {
  // Four chunks of 1 KiB; the second begins in the first tensor and ends in the second.
  std::vector<ByteVector> tensors{ByteVector(1028), ByteVector(3068)};
  // The last rank receives the third chunk, which is in one tensor, and the first two together.
  const Places third{{1020, 1020 + 1 * KiB}};
  EXPECT_EQ(places_in(tensors[1], landings_in(tensors, 3, 4)), third);
}

TEST(Executor, PairsOfBlocksLandOnlyWhereTheyLieEndToEnd) {
  constexpr size_t kBlock = 2 * KiB;
  std::vector<ByteVector> tensor{ByteVector(4 * kBlock)};
  const auto places = [&](size_t segment_bytes) {
    Schedule schedule = recursive_doubling_allgather(0, 4);
    const std::vector<size_t> blocks(4, kBlock);
    auto plan = blocks_plan(std::move(schedule), blocks, segment_bytes, sizeof(float));
    return places_in(tensor[0], landings_in(tensor, 0, 4, std::move(plan)));
  };
  const Places whole{{kBlock, 2 * kBlock}, {2 * kBlock, 4 * kBlock}};
  EXPECT_EQ(places(4 * kBlock), whole);
  const Places halves{{kBlock, kBlock + kBlock / 2}, {kBlock + kBlock / 2, 2 * kBlock}};
  EXPECT_EQ(places(kBlock), halves);  // for the pair, half of each block
}

}  // namespace
}  // namespace hvd
