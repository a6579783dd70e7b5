// Which operations have a single plan. *_runs_test.cc tests the data.
#include "core/backend/host/host_backend.h"

#include <gtest/gtest.h>

#include "core/backend/host/testing.h"

namespace hvd::test {
namespace {

Operation operation_of(OperationKind kind) { return {.kind = kind}; }

TEST(HostBackend, PlansOneTensorForAllRanks) {
  Job job({.ranks_per_host = {1, 1, 1}});
  HostBackend backend({});
  const auto plan_of = [&](const Operation& operation) {
    return backend.plan_of(job.groups(1), operation, 100);
  };
  const auto sum = plan_of(operation_of(OperationKind::allreduce));
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->schedule, recursive_doubling_allreduce(1, 3));
  EXPECT_EQ(sum->layout.bytes(), 100u);
  Operation from_2 = operation_of(OperationKind::broadcast);
  from_2.root = 2;
  const auto broadcast = plan_of(from_2);
  ASSERT_NE(broadcast, nullptr);
  EXPECT_EQ(broadcast->schedule, binomial_broadcast(1, 3, 2));
  for (const OperationKind kind :
       {OperationKind::allgather, OperationKind::alltoall, OperationKind::reducescatter})
    EXPECT_EQ(plan_of(operation_of(kind)), nullptr);
}

TEST(HostBackend, PlansAsTheRulesSay) {
  Job job({.ranks_per_host = {1, 1, 1, 1}});
  HostBackend by_ring({.allreduce = {.choice = AlgorithmChoice::ring}});
  const auto plan = by_ring.plan_of(job.groups(3), operation_of(OperationKind::allreduce), 100);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->schedule, ring_allreduce(3, 4));
}

TEST(HostBackend, HasNoPlanWhereAnOperationIsSeveralPassesOrIsCarried) {
  Operation sum = operation_of(OperationKind::allreduce), adasum = sum;
  adasum.op = ReduceOp::adasum;
  Job flat({.ranks_per_host = {1, 1}});
  HostBackend plain({}), in_levels(level_rules());
  EXPECT_EQ(plain.plan_of(flat.groups(0), adasum, 100), nullptr);
  EXPECT_NE(in_levels.plan_of(flat.groups(0), sum, 100), nullptr);
  Job levels({.ranks_per_host = {2, 2}, .levels = true});
  EXPECT_EQ(in_levels.plan_of(levels.groups(0), sum, 100), nullptr);
  EXPECT_NE(in_levels.plan_of(levels.groups(0), operation_of(OperationKind::broadcast), 100),
            nullptr);
  Job carried({.ranks_per_host = {2}, .mpi_call_bytes = 1000});
  HostBackend by_mpi({}, &carried.carrier(0));
  EXPECT_EQ(by_mpi.plan_of(carried.groups(0), sum, 100), nullptr);
}

TEST(HostBackend, RunsTellHowTheBytesMove) {
  std::vector<float> memory(4);
  auto* const data = reinterpret_cast<std::byte*>(memory.data());
  const auto route_of = [&](Job& job, HostBackend& backend, OperationKind kind) {
    Gathered gathered;
    Batch batch{.sequence = 1, .operation = {.kind = kind, .dtype = DType::float32}};
    batch.tensors = {{.input = data, .output = data, .shape = {4}}};
    if (has_free_rows(kind)) batch.tensors[0].output = nullptr;
    batch.tensors[0].gathered = &gathered;
    return backend.start(job.groups(0), std::move(batch))->route();
  };
  Job links({.ranks_per_host = {1, 1, 1}});
  HostBackend by_tree({.allreduce = {.choice = AlgorithmChoice::tree}});
  EXPECT_EQ(route_of(links, by_tree, OperationKind::allreduce),
            Route{.algorithm = Algorithm::tree});
  EXPECT_EQ(route_of(links, by_tree, OperationKind::broadcast),
            Route{.algorithm = Algorithm::binomial});
  EXPECT_EQ(route_of(links, by_tree, OperationKind::allgather),
            Route{.algorithm = Algorithm::ring});
  Job carried({.ranks_per_host = {2}, .mpi_call_bytes = 1000});
  HostBackend by_mpi({}, &carried.carrier(0));
  EXPECT_EQ(route_of(carried, by_mpi, OperationKind::allreduce), Route{.mover = Mover::mpi});
}

}  // namespace
}  // namespace hvd::test
