#include "core/capi/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/aligned_buffer.h"
#include "core/base/error.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRank = 1;

/// A request of rank 1 in a job of 4 with the sets 1: [0, 1, 3] and 2: [2, 3].
class Submission : public testing::Test {
 protected:
  Submission() {
    sets_.add(7, {0, 1, 3});
    sets_.add(8, {2, 3});
    request_.name = "w";
    request_.inputs = &input_;
    request_.outputs = &output_;
    request_.count = 1;
    request_.op = HVD_SUM;
    request_.prescale = request_.postscale = 1;
    set_shape({6, 2});
  }
  ~Submission() override {
    if (operation_ && !operation_->handle.done()) operation_->handle.complete({});
  }

  void set_shape(std::vector<int64_t> shape) {
    shape_ = std::move(shape);
    input_ = {.data = data_.data(),
              .shape = shape_.data(),
              .dimensions = static_cast<int32_t>(shape_.size()),
              .dtype = HVD_FLOAT32};
  }

  Request make() {
    Request made = make_request(request_, kRank, sets_, knobs_);
    if (operation_ && !operation_->handle.done()) operation_->handle.complete({});
    operation_ = made.operation;
    return made;
  }

  /// Why the request is refused, on this rank alone.
  std::string refusal() {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  }

  ProcessSets sets_{4};
  Knobs knobs_;
  hvd_request request_{};
  std::vector<float> data_ = std::vector<float>(100);
  std::vector<int64_t> shape_;
  hvd_tensor input_{};
  void* output_ = data_.data();
  std::shared_ptr<Operation> operation_;
};

struct Told {
  hvd_status status = HVD_OK;
  std::string text;
  std::vector<int64_t> shape{};
  int times = 0;

  static void note(void* told, const hvd_ending* ending) {
    Told& note = *static_cast<Told*>(told);
    note.status = ending->status;
    note.text = ending->text;
    ++note.times;
    for (int32_t i = 0; i < ending->output_count; ++i) {
      const hvd_tensor& output = ending->outputs[i];
      note.shape.assign(output.shape, output.shape + output.dimensions);
      AlignedBuffer::free_released(static_cast<std::byte*>(output.data));
    }
  }
};

TEST_F(Submission, TellsHowItEndedAndHandsItsOutputsOver) {
  Told told;
  request_.ended = Told::note;
  request_.owner = &told;
  request_.kind = HVD_ALLGATHER;
  const Request made = make();
  made.operation->outputs[0].gathered = {AlignedBuffer(16), {2, 2}};
  made.ended({});
  EXPECT_EQ(told.status, HVD_OK);
  EXPECT_THAT(told.shape, ElementsAre(2, 2));
  EXPECT_EQ(made.operation->outputs[0].gathered.memory.data(), nullptr);
  EXPECT_EQ(told.times, 1);
}

TEST_F(Submission, TellsAnErrorWithoutOutputs) {
  Told told;
  request_.ended = Told::note;
  request_.owner = &told;
  request_.kind = HVD_ALLGATHER;
  make().ended({Code::peer_lost, "rank 3 was lost", 3});
  EXPECT_EQ(told.status, HVD_PEER_LOST);
  EXPECT_EQ(told.text, "rank 3 was lost");
  EXPECT_TRUE(told.shape.empty());
}

TEST_F(Submission, GoesToTheGroupOfItsSet) {
  EXPECT_EQ(make().group, kWorldGroup);
  operation_->handle.complete({});
  request_.process_set = 1;
  EXPECT_EQ(make().group, 7U);
}

TEST_F(Submission, ForAnUnknownSetOrOneOfOthersIsRefused) {
  request_.process_set = 3;
  EXPECT_THAT(refusal(), HasSubstr("allreduce \"w\": no process set has the id 3"));
  request_.process_set = 2;
  EXPECT_THAT(refusal(), HasSubstr("rank 1 is not a member of process set 2, which has the ranks "
                                   "[2, 3]"));
}

TEST_F(Submission, BroadcastNeedsARootInTheSetAndKeepsItsGlobalNumber) {
  request_.kind = HVD_BROADCAST;
  request_.process_set = 1;
  request_.root = 2;
  EXPECT_THAT(refusal(), HasSubstr("root rank 2 is not a member of process set 1"));
  request_.root = 3;
  EXPECT_EQ(make().signature.root, 3);
}

TEST_F(Submission, AlltoallDealsOutEqualPartsOfTheSet) {
  request_.kind = HVD_ALLTOALL;
  request_.process_set = 1;
  const Request made = make();
  EXPECT_THAT(made.tensors.at(0).splits, ElementsAre(2, 2, 2));
  EXPECT_THAT(made.signature.shapes[0], ElementsAre(kFreeDimension, 2));
  EXPECT_EQ(made.tensors[0].gathered, &made.operation->outputs.at(0).gathered);
  EXPECT_EQ(made.tensors[0].received_splits, &made.operation->outputs.at(1).gathered);
  EXPECT_EQ(made.operation->outputs[0].dtype, DType::float32);
  EXPECT_EQ(made.operation->outputs[1].dtype, DType::int32);
}

TEST_F(Submission, AlltoallTakesSplitsThatLeaveATail) {
  request_.kind = HVD_ALLTOALL;
  const std::vector<int32_t> splits = {0, 3, 1, 1};
  request_.splits = splits.data();
  request_.split_count = 4;
  EXPECT_EQ(make().tensors.at(0).splits, splits);
}

TEST_F(Submission, AlltoallWithSplitsThatDoNotFitIsRefused) {
  request_.kind = HVD_ALLTOALL;
  EXPECT_THAT(refusal(), HasSubstr("6 rows cannot be dealt out equally to 4 ranks"));
  const auto with = [&](std::vector<int32_t> splits) {
    request_.splits = splits.data();
    request_.split_count = static_cast<int32_t>(splits.size());
    return refusal();
  };
  EXPECT_THAT(with({1, 2, 3}), HasSubstr("3 splits, expected one for each of the 4 ranks"));
  EXPECT_THAT(with({1, -1, 3, 1}), HasSubstr("a split is negative"));
  EXPECT_THAT(with({1, 2, 3, 1}), HasSubstr("add up to 7, but the tensor has only 6 rows"));
  EXPECT_THAT(with({INT32_MAX, INT32_MAX, 2, 0}), HasSubstr("only 6 rows"));
}

TEST_F(Submission, AScalarHasNoRowsToMove) {
  set_shape({});
  for (const auto& [kind, name] :
       {std::pair{HVD_ALLGATHER, "allgather"}, std::pair{HVD_ALLTOALL, "alltoall"},
        std::pair{HVD_REDUCESCATTER, "reducescatter"}}) {
    request_.kind = kind;
    EXPECT_THAT(refusal(), HasSubstr(std::string(name) + " \"w\": a scalar"));
  }
  request_.kind = HVD_ALLREDUCE;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Submission, ReducescatterSumsOrAveragesAndScales) {
  request_.kind = HVD_REDUCESCATTER;
  request_.prescale = 0.5;
  request_.postscale = 3;
  const Signature signature = make().signature;
  EXPECT_EQ(signature.kind, OperationKind::reducescatter);
  EXPECT_EQ(signature.prescale, 0.5);
  EXPECT_EQ(signature.postscale, 3);
  EXPECT_THAT(signature.shapes[0], ElementsAre(6, 2));
  for (const hvd_reduce_op op : {HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_ADASUM}) {
    request_.op = op;
    EXPECT_THAT(refusal(), HasSubstr("must be average or sum"));
  }
}

TEST_F(Submission, NeedsMemoryWhereThereAreElements) {
  request_.kind = HVD_ALLREDUCE;
  void* none = nullptr;
  request_.outputs = &none;
  EXPECT_THAT(refusal(), HasSubstr("an output has no memory"));
  set_shape({0, 2});
  EXPECT_NE(make().tensors[0].output, nullptr);  // which would mean that this rank has joined
  request_.outputs = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("there are no outputs"));
  request_.kind = HVD_ALLGATHER;
  EXPECT_EQ(refusal(), "");
  set_shape({6, 2});
  input_.data = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("an input has no memory"));
  request_.inputs = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("there are no inputs"));
}

TEST_F(Submission, ARankThatGetsNoRowsNeedsNoMemoryForThem) {
  request_.kind = HVD_REDUCESCATTER;
  void* none = nullptr;
  request_.outputs = &none;
  set_shape({1, 2});  // the one row goes to rank 0
  EXPECT_EQ(refusal(), "");
  set_shape({2, 2});
  EXPECT_THAT(refusal(), HasSubstr("an output has no memory"));
}

TEST_F(Submission, AShapeThatNoMemoryHoldsIsRefused) {
  set_shape({int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(refusal(), HasSubstr("larger than any memory"));
}

TEST_F(Submission, AFactorThatIsNotANumberIsRefused) {
  for (const auto factor : {&hvd_request::prescale, &hvd_request::postscale}) {
    request_.*factor = std::nan("");
    EXPECT_THAT(refusal(), HasSubstr("a scale factor is not a number"));
    request_.*factor = 1;
  }
}

TEST_F(Submission, WhatCannotBeReducedCanBeMoved) {
  input_.dtype = HVD_UINT16;
  EXPECT_THAT(refusal(), HasSubstr("uint16"));
  input_.dtype = HVD_BOOL;
  EXPECT_THAT(refusal(), HasSubstr("bool"));
  request_.kind = HVD_REDUCESCATTER;
  EXPECT_THAT(refusal(), HasSubstr("bool"));
  for (const hvd_kind kind : {HVD_ALLGATHER, HVD_BROADCAST}) {
    for (const hvd_dtype dtype : {HVD_UINT16, HVD_BOOL}) {
      request_.kind = kind;
      input_.dtype = dtype;
      EXPECT_EQ(refusal(), "");
      operation_->handle.complete({});
    }
  }
  operation_.reset();
}

TEST_F(Submission, BoolIsReducedByMinAndMax) {
  input_.dtype = HVD_BOOL;
  request_.op = HVD_MIN;
  EXPECT_EQ(make().signature.op, ReduceOp::min);
}

TEST_F(Submission, AdasumNeedsAPowerOfTwoOfRanksAndFloats) {
  request_.op = HVD_ADASUM;
  request_.process_set = 1;
  EXPECT_THAT(refusal(), HasSubstr("a power of two, but 3 take part"));
  request_.process_set = 0;
  input_.dtype = HVD_INT32;
  EXPECT_THAT(refusal(), HasSubstr("floating-point tensors, not int32"));
  input_.dtype = HVD_FLOAT16;
  EXPECT_EQ(make().signature.op, ReduceOp::adasum);
}

TEST_F(Submission, OnAGroupBecomesABatch) {
  const ProcessSet members = ProcessSet::of_all(3);
  request_.kind = HVD_ALLREDUCE;
  request_.op = HVD_AVERAGE;
  request_.prescale = 2;
  const Batch batch = make_batch(request_, kRank, members);
  EXPECT_EQ(batch.transfer, Transfer::allreduce);
  EXPECT_EQ(batch.dtype, DType::float32);
  EXPECT_EQ(batch.op, ReduceOp::average);
  EXPECT_EQ(batch.prescale, 2);
  ASSERT_EQ(batch.tensors.size(), 1u);
  EXPECT_EQ(batch.tensors[0].input, input_.data);
  EXPECT_EQ(batch.tensors[0].output, output_);
  EXPECT_EQ(batch.tensors[0].shape, (Shape{6, 2}));

  request_.kind = HVD_BROADCAST;
  request_.root = 2;
  EXPECT_EQ(make_batch(request_, kRank, members).root, 2);
  request_.root = 3;
  EXPECT_THROW(make_batch(request_, kRank, members), Error);

  request_.kind = HVD_ALLTOALL;
  EXPECT_EQ(make_batch(request_, kRank, members).tensors[0].gathered, nullptr);
  set_shape({7, 2});
  EXPECT_THROW(make_batch(request_, kRank, members), Error);
}

TEST_F(Submission, JoinIsForAllRanksAndNeedsNoName) {
  request_.kind = HVD_JOIN;
  request_.name = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("1 tensors, expected 0"));
  request_.count = 0;
  request_.process_set = 1;
  EXPECT_THAT(refusal(), HasSubstr("only all ranks of the job can join"));
  request_.process_set = 0;
  EXPECT_EQ(make().kind, Request::Kind::join);
}

TEST_F(Submission, OfAlltoallIsOneTensorAndOfABarrierNone) {
  request_.kind = HVD_ALLTOALL;
  request_.count = 2;
  EXPECT_THAT(refusal(), HasSubstr("2 tensors, expected 1"));
  request_.kind = HVD_BARRIER;
  EXPECT_THAT(refusal(), HasSubstr("2 tensors, expected 0"));
}

TEST_F(Submission, OfNoKnownKindIsRefused) {
  request_.kind = static_cast<hvd_kind>(HVD_JOIN + 1);
  EXPECT_THAT(refusal(), HasSubstr("7 is no kind of operation"));
}

}  // namespace
}  // namespace hvd
