// Details of MPI that the tests of the runs, which also use MPI, do not cover.
#include "core/backend/mpi/mpi_carrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/backend/host/testing.h"
#include "core/backend/mpi/fake_mpi_testing.h"
#include "core/base/error.h"

namespace hvd::mpi {
namespace {

using hvd::test::act_as;
using hvd::test::fake_mpi;
using ::testing::AnyOf;

constexpr size_t kElements = 1000;

/// Two ranks with MPI and one tensor each.
struct TwoRanks {
  explicit TwoRanks(size_t call_bytes = kMostBytesOfCall)
      : job({.ranks_per_host = {2}, .mpi_call_bytes = call_bytes}) {}

  Batch allreduce(int rank, bool in_place, int tensors = 1) {
    Batch batch{.operation = {.dtype = DType::float32}};
    for (int i = 0; i < tensors; ++i) {
      auto& input = inputs.emplace_back(kElements, 1.0F + static_cast<float>(rank));
      auto& output = outputs.emplace_back(kElements, 0.0F);
      BatchTensor& tensor = batch.tensors.emplace_back();
      tensor.shape = {static_cast<int64_t>(kElements)};
      tensor.output = reinterpret_cast<std::byte*>(in_place ? input.data() : output.data());
      tensor.input = reinterpret_cast<const std::byte*>(input.data());
    }
    return batch;
  }

  hvd::test::Job job;
  std::list<std::vector<float>> inputs, outputs;
};

TEST(MpiCarrier, WhatLiesInOnePieceIsNotCopied) {
  TwoRanks two;
  const Batch first = two.allreduce(0, false), second = two.allreduce(1, false);
  ASSERT_TRUE(two.job.run({}, {{first}, {second}}));
  EXPECT_THAT(fake_mpi().input, AnyOf(first.tensors[0].input, second.tensors[0].input));
  EXPECT_THAT(fake_mpi().output, AnyOf(first.tensors[0].output, second.tensors[0].output));
}

TEST(MpiCarrier, MpiNeverReadsWhatItWrites) {
  TwoRanks two;
  const Batch first = two.allreduce(0, true), second = two.allreduce(1, true);
  ASSERT_TRUE(two.job.run({}, {{first}, {second}}));
  EXPECT_NE(fake_mpi().input, fake_mpi().output);
  EXPECT_THAT(fake_mpi().output, AnyOf(first.tensors[0].output, second.tensors[0].output));
  EXPECT_EQ(two.inputs.front(), std::vector<float>(kElements, 3.0F));
}

TEST(MpiCarrier, SeveralTensorsAreOneCall) {
  TwoRanks two;
  ASSERT_TRUE(two.job.run({}, {{two.allreduce(0, false, 5)}, {two.allreduce(1, false, 5)}}));
  EXPECT_EQ(fake_mpi().calls, 2);
  EXPECT_EQ(fake_mpi().most_bytes, 5 * kElements * sizeof(float));
  for (const auto& output : two.outputs) EXPECT_EQ(output, std::vector<float>(kElements, 3.0F));
}

TEST(MpiCarrier, NoCallIsLargerThanItMayBe) {
  TwoRanks two(1002);
  ASSERT_TRUE(two.job.run({}, {{two.allreduce(0, false)}, {two.allreduce(1, false)}}));
  EXPECT_EQ(fake_mpi().calls, 2 * 4);
  EXPECT_EQ(fake_mpi().most_bytes, 1000U);  // whole elements
  EXPECT_EQ(two.outputs.back(), std::vector<float>(kElements, 3.0F));
}

TEST(MpiCarrier, APassWaitsForItsCommunicator) {
  TwoRanks two;
  MpiCarrier late(two.job.carrier(0).table(), {7});
  const Group& group = *two.job.groups(0).all;
  late.enter(group, {0});
  std::vector<float> values(2, 1.0F);
  Work work;
  work.dtype = DType::float32;
  work.output.add(reinterpret_cast<std::byte*>(values.data()), 8);
  work.input = work.output;
  const auto run = late.start(group, {OperationKind::allreduce}, {8}, work);
  EXPECT_EQ(run->advance(), Progress::waiting);
  act_as(7);
  late.make_communicator({0});
  EXPECT_EQ(run->advance(), Progress::moved);
  EXPECT_EQ(run->advance(), Progress::done);
}

TEST(MpiCarrier, AFailureSaysWhatMpiSays) {
  TwoRanks two;
  HostBackend backend({}, &two.job.carrier(0));
  const auto run = backend.start(two.job.groups(0), two.allreduce(0, false));
  fake_mpi().fails = true;
  try {
    run->advance();
    FAIL() << "it did not fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
    EXPECT_STREQ(error.what(), "MPI_Iallreduce of Fake MPI failed: error 17");
  }
}

TEST(MpiCarrier, IsAbandonedWhereACallIsLeftBehind) {
  TwoRanks two;
  HostBackend backend({}, &two.job.carrier(0));
  auto run = backend.start(two.job.groups(0), two.allreduce(0, false));
  run.reset();
  EXPECT_FALSE(fake_mpi().abandoned);  // no operation was started
  run = backend.start(two.job.groups(0), two.allreduce(0, false));
  EXPECT_EQ(run->advance(), Progress::moved);
  EXPECT_EQ(run->advance(), Progress::waiting);
  run.reset();
  EXPECT_TRUE(fake_mpi().abandoned);
}

TEST(MpiCarrier, CommunicatorsAreFreedWithTheirSetOrTheJob) {
  std::optional<TwoRanks> two(std::in_place);
  EXPECT_EQ(fake_mpi().communicators, 2);
  act_as(100);
  two->job.carrier(0).make_communicator({0});
  EXPECT_EQ(fake_mpi().communicators, 3);
  two->job.carrier(0).free_communicator({0});
  EXPECT_EQ(fake_mpi().communicators, 2);
  two.reset();
  EXPECT_EQ(fake_mpi().communicators, 0);
}

}  // namespace
}  // namespace hvd::mpi
