#include "core/capi/submission.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/backend/host/host_backend.h"
#include "core/base/aligned_buffer.h"
#include "core/base/error.h"
#include "core/capi/operation_of.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRank = 1;

/// A request of rank 1 in a job of 4 ranks with the sets 1: [0, 1, 3] and 2: [2, 3].
class Submission : public testing::Test {
 protected:
  Submission() {
    sets_.add(7, {0, 1, 3});
    sets_.add(8, {2, 3});
    request_.name = "w";
    request_.inputs = &input_;
    request_.outputs = &output_;
    request_.count = 1;
    request_.operation.op = HVD_SUM;
    request_.operation.prescale = request_.operation.postscale = 1;
    set_shape({6, 2});
  }
  ~Submission() override {
    if (completion_ && !completion_->handle.done()) completion_->handle.complete({});
  }

  void set_shape(std::vector<int64_t> shape) {
    shape_ = std::move(shape);
    input_ = {.data = data_.data(),
              .shape = shape_.data(),
              .dimensions = static_cast<int32_t>(shape_.size()),
              .dtype = HVD_FLOAT32,
              .device = {HVD_HOST, 0},
              .stream = nullptr};
  }

  Request make() {
    Request made = make_request(request_, kRank, sets_, knobs_, ready_);
    if (completion_ && !completion_->handle.done()) completion_->handle.complete({});
    completion_ = made.completion;
    return made;
  }

  /// The error for the request, "" for none.
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
  const Backends backends_{std::make_unique<HostBackend>(HostRules())};
  ReadyPoints ready_{backends_};
  Knobs knobs_;
  hvd_request request_{};
  std::vector<float> data_ = std::vector<float>(100);
  std::vector<int64_t> shape_;
  hvd_tensor input_{};
  void* output_ = data_.data();
  std::shared_ptr<Completion> completion_;
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
  request_.operation.kind = HVD_ALLGATHER;
  const Request made = make();
  made.completion->outputs[0].gathered = {AlignedBuffer(16), {2, 2}};
  made.ended({});
  EXPECT_EQ(told.status, HVD_OK);
  EXPECT_THAT(told.shape, ElementsAre(2, 2));
  EXPECT_EQ(made.completion->outputs[0].gathered.memory.data(), nullptr);
  EXPECT_EQ(told.times, 1);
}

TEST_F(Submission, TellsAnErrorWithoutOutputs) {
  Told told;
  request_.ended = Told::note;
  request_.owner = &told;
  request_.operation.kind = HVD_ALLGATHER;
  make().ended({Code::peer_lost, "rank 3 was lost", 3});
  EXPECT_EQ(told.status, HVD_PEER_LOST);
  EXPECT_EQ(told.text, "rank 3 was lost");
  EXPECT_TRUE(told.shape.empty());
}

TEST_F(Submission, GoesToTheGroupOfItsSet) {
  EXPECT_EQ(make().group, kWorldGroup);
  completion_->handle.complete({});
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
  request_.operation.kind = HVD_BROADCAST;
  request_.process_set = 1;
  request_.operation.root = 2;
  EXPECT_THAT(refusal(), HasSubstr("root rank 2 is not a member of process set 1"));
  request_.operation.root = 3;
  EXPECT_EQ(make().signature.operation.root, 3);
}

TEST_F(Submission, AlltoallDealsOutEqualPartsOfTheSet) {
  request_.operation.kind = HVD_ALLTOALL;
  request_.process_set = 1;
  const Request made = make();
  EXPECT_THAT(made.tensors.at(0).splits, ElementsAre(2, 2, 2));
  EXPECT_THAT(made.signature.shapes[0], ElementsAre(kFreeDimension, 2));
  EXPECT_EQ(made.tensors[0].gathered, &made.completion->outputs.at(0).gathered);
  EXPECT_EQ(made.tensors[0].received_splits, &made.completion->outputs.at(1).gathered);
  EXPECT_EQ(made.completion->outputs[0].dtype, DType::float32);
  EXPECT_EQ(made.completion->outputs[1].dtype, DType::int32);
}

TEST_F(Submission, AlltoallTakesSplitsThatLeaveATail) {
  request_.operation.kind = HVD_ALLTOALL;
  const std::vector<int32_t> splits = {0, 3, 1, 1};
  request_.splits = splits.data();
  request_.split_count = 4;
  EXPECT_EQ(make().tensors.at(0).splits, splits);
}

TEST_F(Submission, AlltoallWithSplitsThatDoNotFitIsRefused) {
  request_.operation.kind = HVD_ALLTOALL;
  EXPECT_THAT(refusal(), HasSubstr("6 rows cannot be divided equally among 4 ranks"));
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
    request_.operation.kind = kind;
    EXPECT_THAT(refusal(), HasSubstr(std::string(name) + " \"w\": a scalar"));
  }
  request_.operation.kind = HVD_ALLREDUCE;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Submission, ReducescatterSumsOrAveragesAndScales) {
  request_.operation.kind = HVD_REDUCESCATTER;
  request_.operation.prescale = 0.5;
  request_.operation.postscale = 3;
  const Signature signature = make().signature;
  EXPECT_EQ(signature.operation.kind, OperationKind::reducescatter);
  EXPECT_EQ(signature.operation.prescale, 0.5);
  EXPECT_EQ(signature.operation.postscale, 3);
  EXPECT_THAT(signature.shapes[0], ElementsAre(6, 2));
  for (const hvd_reduce_op op : {HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_ADASUM}) {
    request_.operation.op = op;
    EXPECT_THAT(refusal(), HasSubstr("must be average or sum"));
  }
}

TEST_F(Submission, NeedsMemoryWhereThereAreElements) {
  request_.operation.kind = HVD_ALLREDUCE;
  void* none = nullptr;
  request_.outputs = &none;
  EXPECT_THAT(refusal(), HasSubstr("an output has no memory"));
  set_shape({0, 2});
  EXPECT_NE(make().tensors[0].output, nullptr);  // which would mean that this rank has joined
  request_.outputs = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("outputs is NULL"));
  request_.operation.kind = HVD_ALLGATHER;
  EXPECT_EQ(refusal(), "");
  set_shape({6, 2});
  input_.data = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("an input has no memory"));
  request_.inputs = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("inputs is NULL"));
}

TEST_F(Submission, ARankThatGetsNoRowsNeedsNoMemoryForThem) {
  request_.operation.kind = HVD_REDUCESCATTER;
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

TEST_F(Submission, DevicesThatAreNotSupportedAreRefusedByName) {
  hvd_tensor tensors[] = {input_, input_};
  void* outputs[] = {data_.data(), data_.data()};
  request_.inputs = tensors;
  request_.outputs = outputs;
  request_.count = 2;
  tensors[1].device = {HVD_CUDA, 1};
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("the tensors of a group must be on one device, but "
                                               "input 0 of rank {} is on the host and input 1 on "
                                               "device 1 of CUDA",
                                               kRank)));
  tensors[1].device = {HVD_ROCM, 0};
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("allreduce \"w\": input 1 of rank {} is on device 0 "
                                               "of ROCm, but this version supports host memory and "
                                               "CUDA only",
                                               kRank)));
  tensors[1].device = {static_cast<hvd_device_type>(HVD_ROCM + 1), 0};
  EXPECT_THAT(refusal(), HasSubstr("on a device of unknown type 3"));
  tensors[1].device = {HVD_HOST, 0};
  EXPECT_EQ(refusal(), "");
}

TEST_F(Submission, ADescriptionHasTheDeviceOfTheTensors) {
  EXPECT_EQ(operation_of(request_).device, DeviceKind::host);
  input_.device = {HVD_CUDA, 1};
  EXPECT_EQ(operation_of(request_).device, DeviceKind::cuda);
}

TEST_F(Submission, AFactorThatIsNotANumberIsRefused) {
  for (const auto factor : {&hvd_operation::prescale, &hvd_operation::postscale}) {
    request_.operation.*factor = std::nan("");
    EXPECT_THAT(refusal(), HasSubstr("a scale factor is not a number"));
    request_.operation.*factor = 1;
  }
}

TEST_F(Submission, WhatCannotBeReducedCanBeMoved) {
  input_.dtype = HVD_UINT16;
  EXPECT_THAT(refusal(), HasSubstr("uint16"));
  input_.dtype = HVD_BOOL;
  EXPECT_THAT(refusal(), HasSubstr("bool"));
  request_.operation.kind = HVD_REDUCESCATTER;
  EXPECT_THAT(refusal(), HasSubstr("bool"));
  for (const hvd_operation_kind kind : {HVD_ALLGATHER, HVD_BROADCAST}) {
    for (const hvd_dtype dtype : {HVD_UINT16, HVD_BOOL}) {
      request_.operation.kind = kind;
      input_.dtype = dtype;
      EXPECT_EQ(refusal(), "");
      completion_->handle.complete({});
    }
  }
  completion_.reset();
}

TEST_F(Submission, BoolIsReducedByMinAndMax) {
  input_.dtype = HVD_BOOL;
  request_.operation.op = HVD_MIN;
  EXPECT_EQ(make().signature.operation.op, ReduceOp::min);
}

TEST_F(Submission, AdasumNeedsAPowerOfTwoOfRanksAndFloats) {
  request_.operation.op = HVD_ADASUM;
  request_.process_set = 1;
  EXPECT_THAT(refusal(), HasSubstr("a power of two, but 3 take part"));
  request_.process_set = 0;
  input_.dtype = HVD_INT32;
  EXPECT_THAT(refusal(), HasSubstr("floating-point tensors, not int32"));
  input_.dtype = HVD_FLOAT16;
  EXPECT_EQ(make().signature.operation.op, ReduceOp::adasum);
}

TEST_F(Submission, OnAGroupBecomesABatch) {
  const ProcessSet members = ProcessSet::of_all(3);
  request_.operation.kind = HVD_ALLREDUCE;
  request_.operation.op = HVD_AVERAGE;
  request_.operation.prescale = 2;
  const Batch batch = make_batch(request_, kRank, members);
  EXPECT_EQ(batch.operation.kind, OperationKind::allreduce);
  EXPECT_EQ(batch.operation.dtype, DType::float32);
  EXPECT_EQ(batch.operation.op, ReduceOp::average);
  EXPECT_EQ(batch.operation.prescale, 2);
  ASSERT_EQ(batch.tensors.size(), 1u);
  EXPECT_EQ(batch.tensors[0].input, input_.data);
  EXPECT_EQ(batch.tensors[0].output, output_);
  EXPECT_EQ(batch.tensors[0].shape, (Shape{6, 2}));

  request_.operation.kind = HVD_BROADCAST;
  request_.operation.root = 2;
  EXPECT_EQ(make_batch(request_, kRank, members).operation.root, 2);
  request_.operation.root = 3;
  EXPECT_THROW(make_batch(request_, kRank, members), Error);

  request_.operation.kind = HVD_ALLTOALL;
  EXPECT_EQ(make_batch(request_, kRank, members).tensors[0].gathered, nullptr);
  set_shape({7, 2});
  EXPECT_THROW(make_batch(request_, kRank, members), Error);
}

TEST_F(Submission, JoinIsForAllRanksAndNeedsNoName) {
  request_.operation.kind = HVD_JOIN;
  request_.name = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("1 tensors, expected 0"));
  request_.count = 0;
  request_.process_set = 1;
  EXPECT_THAT(refusal(), HasSubstr("only all ranks of the job can join"));
  request_.process_set = 0;
  EXPECT_TRUE(make().joins());
}

TEST_F(Submission, OfAlltoallIsOneTensorAndOfABarrierNone) {
  request_.operation.kind = HVD_ALLTOALL;
  request_.count = 2;
  EXPECT_THAT(refusal(), HasSubstr("2 tensors, expected 1"));
  request_.operation.kind = HVD_BARRIER;
  EXPECT_THAT(refusal(), HasSubstr("2 tensors, expected 0"));
}

TEST_F(Submission, OfNoKnownKindIsRefused) {
  const int unknown = HVD_MESSAGE + 1;  // C can pass it, a conversion in C++ cannot
  static_assert(sizeof unknown == sizeof request_.operation.kind);
  std::memcpy(&request_.operation.kind, &unknown, sizeof unknown);
  EXPECT_THAT(refusal(), HasSubstr("unknown kind of operation 8"));
}

TEST_F(Submission, HasATimeoutInMilliseconds) {
  EXPECT_EQ(make().timeout.count(), 0);
  request_.timeout_seconds = 0.0001;
  EXPECT_EQ(make().timeout.count(), 1);
  request_.timeout_seconds = 1e300;
  EXPECT_GT(make().timeout.count(), 0);
  for (const double wrong : {-1.0, std::nan("")}) {
    request_.timeout_seconds = wrong;
    EXPECT_THAT(refusal(), HasSubstr("a timeout of"));
  }
}

TEST_F(Submission, OfAMessageIsSignedByItsTwoRanks) {
  request_.operation.kind = HVD_MESSAGE;
  request_.operation.root = kRank;
  request_.operation.receiver = 0;
  request_.outputs = nullptr;  // the sender has none
  const Request sent = make();
  EXPECT_EQ(sent.signature.operation.root, kRank);
  EXPECT_THAT(sent.signature.members, ElementsAre(0, kRank));
  EXPECT_EQ(sent.tensors[0].output, sent.tensors[0].input);
  std::swap(request_.operation.root, request_.operation.receiver);
  EXPECT_THAT(refusal(), HasSubstr("outputs is NULL"));
  request_.outputs = &output_;
  EXPECT_EQ(make().tensors[0].output, output_);
}

TEST_F(Submission, OfAMessageHasTwoRanksOfTheJobAndThisIsOne) {
  request_.operation.kind = HVD_MESSAGE;
  const auto refusal_of = [&](int from, int to) {
    request_.operation.root = from, request_.operation.receiver = to;
    return refusal();
  };
  EXPECT_THAT(refusal_of(1, 1), HasSubstr("rank 1 cannot send to itself"));
  EXPECT_THAT(refusal_of(1, 4), HasSubstr("rank 4 is outside the job, 0 to 3"));
  EXPECT_THAT(refusal_of(-1, 1), HasSubstr("rank -1 is outside the job"));
  EXPECT_THAT(refusal_of(0, 2), HasSubstr("rank 1 takes no part in a message from rank 0 to"));
  request_.process_set = 1;
  EXPECT_THAT(refusal_of(1, 0), HasSubstr("pass no process set"));
}

}  // namespace
}  // namespace hvd
