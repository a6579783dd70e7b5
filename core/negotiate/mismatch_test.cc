#include "core/negotiate/mismatch.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/negotiate/testing.h"

namespace hvd {
namespace {

using testing::HasSubstr;

Opinion said(int rank, Signature signature, uint32_t count = 1) {
  return {.signature = std::move(signature), .rank = rank, .count = count};
}

Verdict fault(Opinions opinions) {
  Verdict verdict{.type = Verdict::Type::fault, .opinions = std::move(opinions)};
  verdict.items = {defines(verdict.opinions.front().signature)};
  return verdict;
}

/// A fault of two ranks; `change` modifies the second one's signature.
template <class F>
std::string text_after(F change) {
  Signature other = allreduce_of("w", {4, 3});
  change(other);
  return describe_fault(fault({said(0, allreduce_of("w", {4, 3})), said(1, other)}), "w");
}

TEST(Mismatch, NamesOperationTensorRanksAndBothShapes) {
  EXPECT_EQ(describe_fault(
                fault({said(0, allreduce_of("w", {4, 3})), said(2, allreduce_of("w", {4, 2}))}),
                "grad.w"),
            "allreduce \"grad.w\": ranks disagree about the shape: rank 0 has [4, 3], rank 2 has "
            "[4, 2]; submit the same shape on all ranks");
}

TEST(Mismatch, NamesTheSenderOfAMessage) {
  EXPECT_EQ(
      describe_fault(fault({said(0, message_of("m", 0, 1)), said(1, message_of("m", 1, 0))}), "m"),
      "message \"m\": ranks disagree about the sender: rank 0 has 0, rank 1 has 1; submit "
      "the same sender on all ranks");
}

TEST(Mismatch, TellsTheFirstDifferenceInTheOrderOfTheFields) {
  // The changes accumulate in reverse order of priority: the newest must be reported.
  Signature other = allreduce_of("w", {4, 3});
  const auto text = [&] {
    return describe_fault(fault({said(0, allreduce_of("w", {4, 3})), said(1, other)}), "w");
  };
  other.operation.device = DeviceKind::cuda;
  EXPECT_THAT(text(), HasSubstr("rank 0 has host memory, rank 1 has CUDA memory"));
  other.operation.root = 3;
  EXPECT_THAT(text(), HasSubstr("the root rank: rank 0 has 0, rank 1 has 3"));
  other.operation.op = ReduceOp::max;
  EXPECT_THAT(text(), HasSubstr("the reduce operation: rank 0 has sum, rank 1 has max"));
  other.operation.postscale = 0.5;
  EXPECT_THAT(text(), HasSubstr("the postscale factor: rank 0 has 1, rank 1 has 0.5"));
  other.operation.prescale = 0.25;
  EXPECT_THAT(text(), HasSubstr("the prescale factor: rank 0 has 1, rank 1 has 0.25"));
  other.shapes = {{4, 3, 1}};
  EXPECT_THAT(text(), HasSubstr("the shape: rank 0 has [4, 3], rank 1 has [4, 3, 1]"));
  other.operation.kind = OperationKind::broadcast;
  EXPECT_THAT(text(), HasSubstr("the operation: rank 0 has allreduce, rank 1 has broadcast"));
  other.operation.dtype = DType::float64;
  EXPECT_THAT(text(), HasSubstr("the data type: rank 0 has float32, rank 1 has float64"));
}

TEST(Mismatch, SaysWhichTensorOfAGroupDiffers) {
  Signature group = allreduce_of("g");
  group.shapes = {{1}, {2}, {3}};
  Signature other = group;
  other.shapes[1] = {5};
  EXPECT_THAT(describe_fault(fault({said(0, group), said(1, other)}), "g"),
              HasSubstr("grouped allreduce \"g\": ranks disagree about the shape of tensor 2 of 3: "
                        "rank 0 has [2], rank 1 has [5]"));
}

TEST(Mismatch, SaysThatGroupsDifferInSize) {
  EXPECT_THAT(text_after([](Signature& s) { s.shapes.push_back({1}); }),
              HasSubstr("the number of tensors in the group: rank 0 has 1, rank 1 has 2"));
}

TEST(Mismatch, ShowsTheFreeDimensionOfAnAllgatherAsAStar) {
  Signature gather = allreduce_of("w", {kFreeDimension, 3});
  gather.operation.kind = OperationKind::allgather;
  Signature other = gather;
  other.shapes = {{kFreeDimension, 4}};
  EXPECT_THAT(describe_fault(fault({said(0, gather), said(1, other)}), "w"),
              HasSubstr("rank 0 has [*, 3], rank 1 has [*, 4]"));
}

TEST(Mismatch, CountsRanksThatAgreeAndListsTheLowestFirst) {
  EXPECT_THAT(
      describe_fault(
          fault({said(5, allreduce_of("w", {2}), 3), said(1, allreduce_of("w", {3}), 2)}), "w"),
      HasSubstr("rank 1 and 1 more have [3], rank 5 and 2 more have [2]"));
}

TEST(Mismatch, ListsRanksTogetherThatDifferOnlyInALaterField) {
  Signature other_device = allreduce_of("w", {3});
  other_device.operation.device = DeviceKind::cuda;
  EXPECT_THAT(describe_fault(fault({said(0, allreduce_of("w", {2})),
                                    said(1, allreduce_of("w", {3})), said(2, other_device)}),
                             "w"),
              HasSubstr("rank 0 has [2], rank 1 and 1 more have [3];"));
}

TEST(Mismatch, SaysThatMoreValuesWereFolded) {
  Opinions opinions;
  for (int rank = 0; rank < 7; ++rank) {
    add_opinion(opinions, said(rank, allreduce_of("w", {rank + 1})));
  }
  EXPECT_EQ(opinions.size(), kMaxOpinions);
  EXPECT_THAT(describe_fault(fault(opinions), "w"),
              HasSubstr("rank 3 has [4], 3 more ranks have other values;"));
}

TEST(Mismatch, SaysThatARankHasJoined) {
  Signature gather = allreduce_of("w", {kFreeDimension});
  gather.operation.kind = OperationKind::allgather;
  Verdict verdict = fault({said(0, gather)});
  verdict.joined_fault = true;
  const std::string text = describe_fault(verdict, "w");
  EXPECT_THAT(text, HasSubstr("allgather \"w\": a rank has joined"));
  EXPECT_THAT(text, HasSubstr("sparse_as_dense"));
}

TEST(Mismatch, SaysWhichEndOfAMessageHasJoined) {
  for (const int here : {1, 3}) {
    Verdict verdict = fault({said(here, message_of("m", 1, 3))});
    verdict.joined_fault = true;
    EXPECT_EQ(
        describe_fault(verdict, "m"),
        fmt::format("message \"m\": rank {} has joined, so it exchanges no message with rank {} "
                    "before all ranks have joined; call join after the last message",
                    4 - here, here));
  }
}

TEST(Mismatch, TellsProcessSetsOfDifferentRanks) {
  EXPECT_THAT(
      describe_fault(fault({said(0, add_set_of("s", {0, 1})), said(1, add_set_of("s", {0}))}), "s"),
      HasSubstr("the ranks of the process set: rank 0 has [0, 1], rank 1 has [0]"));
}

}  // namespace
}  // namespace hvd
