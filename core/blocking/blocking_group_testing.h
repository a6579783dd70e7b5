// Helpers for tests of BlockingGroup: ranks that are threads of one process and connect through a
// Store in memory, and their operations.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/blocking/blocking_group.h"
#include "core/transport/mem_store.h"

namespace hvd::test {

/// One rank of the job. It can create groups that include it.
class Member {
 public:
  Member(int rank, int size, const JobKey& key, Store& store, const Knobs& knobs)
      : key_(key), store_(store), knobs_(knobs) {
    Identity identity;
    identity.rank = rank;
    identity.size = size;
    world_ = connect(identity, key, &store, 1, knobs, Terms());
  }
  BlockingGroup group(const std::vector<int>& ranks, const std::string& name,
                      bool spare_cores = false) {
    return BlockingGroup(wiring(ranks, name), ranks, knobs_, spare_cores);
  }
  Wiring wiring(const std::vector<int>& ranks, const std::string& name) {
    return connect_group(world_.roster(), {ranks, name + "/"}, key_, &store_, knobs_);
  }

 private:
  const JobKey key_;
  Store& store_;
  const Knobs knobs_;
  Wiring world_;
};

/// Runs `body(member, rank)` on every rank. An Error fails the test.
inline void on_ranks(int size, const Knobs& knobs, const std::function<void(Member&, int)>& body) {
  MemStore store;
  const JobKey key = make_job_key();
  const auto run = [&](int rank) {
    try {
      Member member(rank, size, key, store, knobs);
      body(member, rank);
    } catch (const Error& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
}

inline Batch sum_of(std::vector<int64_t>& values) {
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return {
      .operation = {.kind = OperationKind::allreduce, .dtype = DType::int64, .op = ReduceOp::sum},
      .tensors = {
          {.input = bytes, .output = bytes, .shape = {static_cast<int64_t>(values.size())}}}};
}

inline Batch broadcast_of(std::vector<int64_t>& values, int root) {
  Batch batch = sum_of(values);
  batch.operation.kind = OperationKind::broadcast;
  batch.operation.root = root;
  return batch;
}

inline TensorTask eager_sum_of(std::vector<int64_t>& values) {
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return {.operation = {.kind = OperationKind::allreduce, .dtype = DType::int64},
          .input = bytes,
          .output = bytes,
          .rows = values.size(),
          .row_bytes = sizeof(int64_t)};
}

}  // namespace hvd::test
