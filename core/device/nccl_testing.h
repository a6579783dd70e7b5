// For tests: ranks of the stand-in NCCL, each a thread with a GPU, a stream and a communicator.
#pragma once

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device/nccl.h"
#include "core/device/testing.h"

namespace hvd::device::test {

inline const Nccl& nccl() {
  static const Nccl* const loaded = Nccl::load(driver(), {}).release();
  return *loaded;
}

struct Rank;

/// Device memory that holds floats.
class Floats {
 public:
  Floats(Rank& rank, const std::vector<float>& values);

  DevicePointer address() const { return memory_.address(); }
  void* at(size_t index = 0) const { return pointer(memory_.address() + index * sizeof(float)); }
  /// After all work on the stream of the rank.
  std::vector<float> read(Rank& rank) const;

 private:
  DeviceMemory memory_;
  size_t count_;
};

struct Rank {
  Rank(int number_, int gpu_index) : number(number_), gpu(gpu_index) {}

  const NcclTable& call() const { return nccl().call(); }
  Floats floats(const std::vector<float>& values) { return Floats(*this, values); }
  /// Throws on a failure; waits until the communicator is no longer in progress.
  void check(NcclResult result) const {
    nccl().check(result, comm, "call");
    if (result == NcclResult::in_progress) finish("call");
  }
  void finish(const char* doing) const {
    NcclResult state = NcclResult::in_progress;
    await([&] {
      nccl().check(call().comm_get_async_error(comm, &state), comm, doing);
      return state != NcclResult::in_progress;
    });
    nccl().check(state, comm, doing);
  }

  const int number;
  Gpu gpu;
  Stream stream{gpu.context};
  CommHandle comm = nullptr;
};

inline Floats::Floats(Rank& rank, const std::vector<float>& values)
    : memory_(rank.gpu.context, values.size() * sizeof(float)), count_(values.size()) {
  const PinnedMemory host(rank.gpu.context, count_ * sizeof(float));
  std::memcpy(host.bytes().data(), values.data(), count_ * sizeof(float));
  copy_async(driver(), address(), host.address(), count_ * sizeof(float), rank.stream.handle());
  await([&] { return rank.stream.idle(); });
}

inline std::vector<float> Floats::read(Rank& rank) const {
  const PinnedMemory host(rank.gpu.context, count_ * sizeof(float));
  copy_async(driver(), host.address(), address(), count_ * sizeof(float), rank.stream.handle());
  await([&] { return rank.stream.idle(); });
  std::vector<float> values(count_);
  std::memcpy(values.data(), host.bytes().data(), count_ * sizeof(float));
  return values;
}

struct WorldOptions {
  bool one_gpu = false;         ///< all ranks use GPU 0
  bool ends_by_itself = false;  ///< the body ends the communicator
};

/// Runs `body` on `size` ranks. Returns the first error; empty: none.
template <class Body>
std::string error_of_world(int size, const WorldOptions& options, const Body& body) {
  UniqueId id{};
  nccl().check(nccl().call().get_unique_id(&id), nullptr, "id");
  std::mutex mutex;
  std::string first;
  const auto run = [&](int number) {
    const std::string error = error_of([&] {
      Rank rank(number, options.one_gpu ? 0 : number);
      CommConfig config;
      config.blocking = 0;
      nccl().check(rank.call().comm_init_rank_config(&rank.comm, size, id, number, &config),
                   nullptr, "init");
      rank.finish("init");
      body(rank);
      if (options.ends_by_itself) return;
      rank.check(rank.call().comm_finalize(rank.comm));
      rank.check(rank.call().comm_destroy(rank.comm));
    });
    const std::lock_guard lock(mutex);
    if (first.empty()) first = error;
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < size; ++number) threads.emplace_back(run, number);
  for (std::thread& thread : threads) thread.join();
  return first;
}

/// Runs `body` on `size` ranks, none of which may fail.
template <class Body>
void world(int size, const Body& body) {
  EXPECT_EQ(error_of_world(size, {}, body), "");
}

}  // namespace hvd::device::test
