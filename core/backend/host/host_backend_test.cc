// Which operations have one plan for a PhasedLinkCall. What the backend moves: *_runs_test.cc.
#include "core/backend/host/host_backend.h"

#include <gtest/gtest.h>

#include "core/backend/host/testing.h"

namespace hvd::testing {
namespace {

EagerTask task_of(Transfer transfer) { return {.transfer = transfer, .rows = 100, .row_bytes = 1}; }

TEST(HostBackend, PlansOneTensorForAllRanks) {
  Job job({.ranks_per_host = {1, 1, 1}});
  HostBackend backend({});
  const auto plan_of = [&](const EagerTask& task) { return backend.plan_of(job.groups(1), task); };
  const auto sum = plan_of(task_of(Transfer::allreduce));
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->schedule, recursive_doubling_allreduce(1, 3));
  EXPECT_EQ(sum->layout.bytes(), 100u);
  EagerTask from_2 = task_of(Transfer::broadcast);
  from_2.root = 2;
  const auto broadcast = plan_of(from_2);
  ASSERT_NE(broadcast, nullptr);
  EXPECT_EQ(broadcast->schedule, binomial_broadcast(1, 3, 2));
  for (const Transfer transfer : {Transfer::allgather, Transfer::alltoall, Transfer::reducescatter})
    EXPECT_EQ(plan_of(task_of(transfer)), nullptr);
}

TEST(HostBackend, PlansAsTheRulesSay) {
  Job job({.ranks_per_host = {1, 1, 1, 1}});
  HostBackend by_ring({.allreduce = {.choice = AlgorithmChoice::ring}});
  const auto plan = by_ring.plan_of(job.groups(3), task_of(Transfer::allreduce));
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->schedule, ring_allreduce(3, 4));
}

TEST(HostBackend, HasNoPlanWhereAnOperationIsSeveralPassesOrIsCarried) {
  EagerTask sum = task_of(Transfer::allreduce), adasum = sum;
  adasum.op = ReduceOp::adasum;
  Job flat({.ranks_per_host = {1, 1}});
  HostBackend plain({}), in_levels(level_rules());
  EXPECT_EQ(plain.plan_of(flat.groups(0), adasum), nullptr);
  EXPECT_NE(in_levels.plan_of(flat.groups(0), sum), nullptr);
  Job levels({.ranks_per_host = {2, 2}, .levels = true});
  EXPECT_EQ(in_levels.plan_of(levels.groups(0), sum), nullptr);
  EXPECT_NE(in_levels.plan_of(levels.groups(0), task_of(Transfer::broadcast)), nullptr);
  Job carried({.ranks_per_host = {2}, .mpi_call_bytes = 1000});
  HostBackend by_mpi({}, &carried.carrier(0));
  EXPECT_EQ(by_mpi.plan_of(carried.groups(0), sum), nullptr);
}

}  // namespace
}  // namespace hvd::testing
