// Tests of the counters and their names.
#include "core/observe/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

namespace hvd {
namespace {

using testing::Each;

std::map<std::string, uint64_t> by_name(const Counters& counters) {
  const auto values = list_of(counters.snapshot());
  std::map<std::string, uint64_t> found;
  for (size_t i = 0; i < values.size(); ++i) found[counter_names().at(i)] = values[i];
  return found;
}

TEST(Counters, BeginAtZero) { EXPECT_THAT(list_of(Counters().snapshot()), Each(0)); }

TEST(Counters, HaveNamesOfTheirOwnAndAsManyAsValues) {
  const auto& names = counter_names();
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(list_of({}).size(), names.size());
}

TEST(Counters, EachIsFoundUnderItsName) {
  Counters counters;
  counters.operation_done(OperationKind::broadcast, 100);
  counters.operation_done(OperationKind::broadcast, 20);
  counters.operation_failed();
  counters.batch_moved({.way = Way::one_shot}, 3);
  counters.batch_moved({.mover = Mover::mpi}, 5);
  counters.cycle();
  counters.announced(40, 7);
  counters.stall_reported();
  counters.own_buffers(4096, 512);
  std::map<std::string, uint64_t> counted;
  for (const auto& [name, value] : by_name(counters))
    if (value != 0) counted[name] = value;
  const std::map<std::string, uint64_t> expected{{"operations.broadcast", 2},
                                                 {"bytes.broadcast", 120},
                                                 {"failed_operations", 1},
                                                 {"batches.one-shot", 1},
                                                 {"batches.mpi", 1},
                                                 {"batched_tensors", 8},
                                                 {"cycles", 1},
                                                 {"cache_hits", 40},
                                                 {"cache_misses", 7},
                                                 {"stall_reports", 1},
                                                 {"buffer_bytes.device", 4096},
                                                 {"buffer_bytes.pinned", 512}};
  EXPECT_EQ(counted, expected);
}

TEST(Counters, MayBeReadWhileTheyAreWritten) {
  Counters counters;
  std::thread writer([&] {
    for (int i = 0; i < 100000; ++i) counters.operation_done(OperationKind::allreduce, 8);
  });
  uint64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t now = counters.snapshot().operations[0];
    EXPECT_GE(now, before);
    before = now;
  }
  writer.join();
  EXPECT_EQ(counters.snapshot().operations[0], 100000);
  EXPECT_EQ(counters.snapshot().bytes[0], 800000);
}

}  // namespace
}  // namespace hvd
