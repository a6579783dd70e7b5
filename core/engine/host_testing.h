// Helpers for tests: whole jobs on one host with real threads, waiters and shared memory. The ranks
// share one process, so a sanitizer sees every access.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/base/clock.h"
#include "core/engine/progress_thread.h"
#include "core/group/segment_memory.h"
#include "core/transport/epoll_waiter.h"

namespace hvd::test {

inline Backends host_memory_only() { return Backends(std::make_unique<HostBackend>(HostRules())); }

struct HostOptions {
  size_t staging_bytes = 256 * KiB;
  Knobs knobs{};
  MakeBackends make_backends = host_memory_only;
};

/// The progress threads of all ranks of a host, on one mapping.
class Host {
 public:
  explicit Host(int ranks, const HostOptions& options = {})
      : layout_(SegmentLayout::of(ranks, options.staging_bytes, kRingBytes)),
        memory_(layout_.total_bytes()) {
    std::vector<Wiring> wirings(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      Wiring& wiring = wirings[rank];
      wiring.identity.rank = wiring.identity.local_rank = rank;
      wiring.identity.size = wiring.identity.local_size = ranks;
      wiring.topology = Topology::of({ranks});
      wiring.generation = kGeneration;
      wiring.waiter = std::make_unique<EpollWaiter>();
      wiring.segment = std::make_unique<HostSegment>(memory_.bytes(), layout_, kGeneration, rank);
    }
    for (int rank = 0; rank < ranks; ++rank) connect(wirings, rank);
    for (int rank = 0; rank < ranks; ++rank) {
      auto engine = std::make_unique<Engine>(
          std::move(wirings[rank]), options.knobs, clock_, [](const Ending&, bool) {},
          options.make_backends);
      threads_.push_back(std::make_unique<ProgressThread>(std::move(engine), ProgressOptions{}));
    }
  }
  ~Host() {
    std::vector<std::thread> ending;
    for (auto& thread : threads_) ending.emplace_back([&thread] { thread.reset(); });
    for (std::thread& thread : ending) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()); }
  ProgressThread& thread(int rank) { return *threads_[rank]; }

  /// Runs `body(rank)` on one thread per rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([=] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static constexpr uint32_t kGeneration = 1;
  static constexpr size_t kRingBytes = 4096;

  static void connect(std::vector<Wiring>& wirings, int rank) {
    for (size_t peer = 0; peer < wirings.size(); ++peer) {
      const int bell = ::fcntl(wirings[peer].waiter->doorbell_fd(), F_DUPFD_CLOEXEC, 0);
      wirings[rank].segment->set_doorbell(static_cast<int>(peer), FileDescriptor(bell));
    }
    if (rank == 0) return;
    wirings[rank].parent = channel(wirings[rank], 0);
    wirings[0].children.push_back({rank, channel(wirings[0], rank)});
  }
  static std::unique_ptr<Channel> channel(Wiring& from, int to) {
    return std::make_unique<Channel>(from.segment->control_link(to, to), to, kGeneration);
  }

  SegmentLayout layout_;
  SegmentMemory memory_;
  SystemClock clock_;
  std::vector<std::unique_ptr<ProgressThread>> threads_;
};

/// An allreduce in place.
inline Request sum_of(const std::string& name, std::vector<float>& tensor) {
  Request request;
  request.name = name;
  request.signature.name = hash_name(name);
  request.signature.operation.dtype = DType::float32;
  const Shape shape{static_cast<int64_t>(tensor.size())};
  request.signature.shapes = {shape};
  auto* data = reinterpret_cast<std::byte*>(tensor.data());
  request.tensors = {{.input = data, .output = data, .shape = shape}};
  request.completion = std::make_shared<Completion>();
  return request;
}

inline std::shared_ptr<Completion> submit(ProgressThread& thread, Request request) {
  auto completion = request.completion;
  EXPECT_FALSE(thread.submit(std::move(request)));
  return completion;
}

inline std::shared_ptr<Completion> submit_sum(ProgressThread& thread, const std::string& name,
                                              std::vector<float>& tensor) {
  return submit(thread, sum_of(name, tensor));
}

}  // namespace hvd::test
