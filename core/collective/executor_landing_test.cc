// Where the executor wants what it receives over links: in the tensor, wherever that is possible.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/collective/executor.h"
#include "core/collective/executor_testing.h"
#include "core/group/group.h"

namespace hvd {
namespace {

/// One rank among peers that send zeros at once, and writes down what was to land where.
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

/// The landings of an allreduce by halving and doubling of `pieces`, in bytes.
std::vector<Expected::Landing> landings_in(std::vector<ByteVector>& pieces, int rank, int size) {
  Expected group(rank, size);
  Work work;
  for (ByteVector& piece : pieces) work.output.add(piece.data(), piece.size());
  work.input = work.output;
  work.dtype = DType::float32;
  work.plan = split_plan(halving_doubling_allreduce(rank, size), work.output.bytes(),
                         2 * group.unit_bytes(), sizeof(float));
  Executor executor(group, std::move(work));
  while (executor.advance() != Executor::Progress::done) continue;
  return group.landings;
}

size_t bytes_in_place(const std::vector<Expected::Landing>& landings) {
  return std::accumulate(landings.begin(), landings.end(), size_t{0},
                         [](size_t sum, const auto& each) { return sum + each.target.size(); });
}

TEST(Executor, SumsOfOthersLandInATensorInOnePiece) {
  constexpr int kRanks = 4;
  constexpr size_t kBytes = 24 * KiB;  // in three segments
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<ByteVector> tensor{ByteVector(kBytes)};
    const auto landings = landings_in(tensor, rank, kRanks);
    EXPECT_EQ(bytes_in_place(landings), kBytes / kRanks * (kRanks - 1)) << "rank " << rank;
    for (const auto& [from, target] : landings) {
      if (target.empty()) continue;  // to be added up
      EXPECT_EQ(target.size(), from.bytes);
      EXPECT_GE(target.data(), tensor[0].data());
      EXPECT_LE(target.data() + target.size(), tensor[0].data() + kBytes);
    }
  }
}

TEST(Executor, SumsThatBelongToTwoTensorsLandInNeither) {
  // Four chunks of 1 KiB, of which the second begins in the first tensor and ends in the other.
  std::vector<ByteVector> tensors{ByteVector(1028), ByteVector(3068)};
  // The last rank gets the third one, which lies in one tensor, and the first two together.
  EXPECT_EQ(bytes_in_place(landings_in(tensors, 3, 4)), 1 * KiB);
}

}  // namespace
}  // namespace hvd
