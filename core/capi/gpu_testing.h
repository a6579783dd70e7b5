// For tests: ranks as threads of one process, each with a GPU of the stand-in driver, and a
// framework that queues work on a stream of its own. Submits through make_request(), as the C
// interface does.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/nccl/nccl_backend.h"
#include "core/capi/submission.h"
#include "core/device/testing.h"
#include "core/engine/host_testing.h"

namespace hvd::test {

using device::DevicePointer;

/// Makes calls of the driver fail from a moment of a job on.
class Mutation {
 public:
  ~Mutation() { fail(nullptr); }
  /// As FAKE_CUDA_FAIL.
  void begin(const std::string& fails) const { fail(fails.c_str()); }

 private:
  static void fail(const char* list) {
    device::test::stand_in<decltype(fake_cuda_fail)>("fake_cuda_fail")(list);
  }
};

/// Tensors on GPUs, submitted by one rank.
class GpuRank {
 public:
  /// `thread`: for submit() and finish(), if the test does not submit by itself.
  GpuRank(int rank, int gpu, ProgressThread* thread = nullptr)
      : thread_(thread), rank_(rank), gpu_(gpu) {}

  int rank() const { return rank_; }
  ProgressThread& thread() { return *thread_; }
  const device::PrimaryContext& context() const { return gpu_.context; }
  device::test::Framework& framework() { return framework_; }

  /// A tensor that the framework fills on its stream.
  template <class T>
  class Tensor {
   public:
    Tensor(GpuRank& owner, std::vector<T> values)
        : owner_(owner),
          memory_(owner.context(), std::max<size_t>(values.size(), 1) * sizeof(T)),
          count_(values.size()) {
      store(std::move(values));
    }
    void store(std::vector<T> values) {
      T* const to = data();
      owner_.framework().queue("fill", {{to, count_ * sizeof(T), true}},
                               [to, values = std::move(values)] { std::ranges::copy(values, to); });
    }
    T* data() const { return static_cast<T*>(device::test::pointer(memory_.address())); }
    size_t count() const { return count_; }
    /// What the framework reads on its stream.
    std::vector<T> read() const { return owner_.read(data(), count_); }

   private:
    GpuRank& owner_;
    device::DeviceMemory memory_;
    size_t count_;
  };
  template <class T>
  Tensor<T> tensor(std::vector<T> values) {
    return Tensor<T>(*this, std::move(values));
  }

  template <class T>
  std::vector<T> read(const T* data, size_t count) {
    std::vector<T> values(count);
    T* const to = values.data();
    framework_.queue("read", {{data, count * sizeof(T), false}},
                     [=] { std::copy_n(data, count, to); });
    framework_.finish();
    return values;
  }

  /// Describes memory on the GPU. `shape` must outlive the result.
  hvd_tensor described(const void* data, hvd_dtype dtype, const std::vector<int64_t>& shape) const {
    hvd_tensor made{};
    made.data = const_cast<void*>(data);
    made.shape = shape.data();
    made.dimensions = static_cast<int32_t>(shape.size());
    made.dtype = dtype;
    made.device = {HVD_CUDA, gpu_.context.index()};
    made.stream = framework_.stream();
    return made;
  }

  std::shared_ptr<Completion> submit(const hvd_request& request) {
    ReadyPoints ready(thread_->backends());
    return test::submit(*thread_,
                        make_request(request, rank_, thread_->process_sets(), knobs_, ready));
  }
  /// As hvd_wait and hvd_wait_on_stream. Returns the text of the error.
  std::string finish(const std::shared_ptr<Completion>& operation) {
    thread_->wait(operation->handle);
    if (operation->result) operation->result->delay(framework_.stream());
    return operation->handle.outcome().text;
  }

 private:
  ProgressThread* const thread_;
  const int rank_;
  const Knobs knobs_;
  device::test::Gpu gpu_;
  device::test::Framework framework_{gpu_.context};
};

/// Blocks the stream of a framework until it is opened.
class ClosedStream {
 public:
  explicit ClosedStream(GpuRank& rank) {
    rank.framework().queue("gate", {},
                           [this] { device::test::await([this] { return open_.load(); }); });
  }
  void open() { open_.store(true); }

 private:
  std::atomic<bool> open_{false};
};

/// Standard error of this process, until its end.
class Stderr {
 public:
  Stderr() : kept_(::dup(2)) {
    EXPECT_EQ(::pipe(pipe_), 0);
    ::dup2(pipe_[1], 2);
  }
  ~Stderr() {
    ::dup2(kept_, 2);
    for (const int file : {kept_, pipe_[0], pipe_[1]}) ::close(file);
  }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;
  /// Blocks until there are lines with all `parts`, and returns all text.
  std::string await(const std::vector<std::string>& parts) const {
    std::string text;
    char one = 0;
    const auto is_missing = [&](const auto& part) { return text.find(part) == std::string::npos; };
    while (one != '\n' || std::ranges::any_of(parts, is_missing)) {
      if (::read(pipe_[0], &one, 1) != 1) break;
      text += one;
    }
    return text;
  }

 private:
  const int kept_;
  int pipe_[2] = {-1, -1};
};

/// Memory for other ranks is never freed, and the GPUs of tests are small.
inline constexpr size_t kIpcPlaceBytes = 64 * KiB;

struct GpuJobOptions {
  nccl::NcclOptions nccl{.connect_timeout = std::chrono::seconds(20),
                         .host = "host",
                         .ipc_place_bytes = kIpcPlaceBytes};
  Knobs knobs{};
  bool one_gpu = false;  ///< all ranks use GPU 0
};

inline CounterValues counters_of(GpuRank& rank) { return rank.thread().counters().snapshot(); }
inline uint64_t batches_by(GpuRank& rank, Mover mover) {
  return counters_of(rank).batches_by[static_cast<size_t>(mover)];
}

inline GpuJobOptions with(GpuOperationsChoice choice) {
  GpuJobOptions made;
  made.nccl.choice = choice;
  return made;
}

/// Ranks that have one GPU, so that they share memory.
inline GpuJobOptions with_ipc(size_t place_bytes = kIpcPlaceBytes,
                              size_t reduced_by_all_bytes = 0) {
  GpuJobOptions made;
  made.nccl.ipc_place_bytes = place_bytes;
  made.nccl.ipc_reduced_by_all_bytes = reduced_by_all_bytes;
  made.nccl.ipc_ranks = nccl::IpcMemory::Rank::thread;
  made.one_gpu = true;
  return made;
}

/// Runs `body(GpuRank&)` on each of `ranks` ranks, which are threads.
template <class Body>
void gpu_job(int ranks, const GpuJobOptions& options, const Body& body) {
  HostOptions host;
  host.knobs = options.knobs;
  host.make_backends = [&] {
    Backends backends = host_memory_only();
    backends.add(DeviceKind::cuda,
                 std::make_unique<nccl::NcclBackend>(options.nccl, backends.host()));
    return backends;
  };
  Host job(ranks, host);
  job.run([&](int rank) {
    GpuRank one(rank, options.one_gpu ? 0 : rank, &job.thread(rank));
    body(one);
  });
}

/// An operation on float32 tensors.
struct GpuRequest {
  explicit GpuRequest(hvd_operation_kind kind, const char* name) {
    request.operation = {kind, HVD_SUM, 1.0, 1.0, 0, 0};
    request.name = name;
  }
  template <class T>
  GpuRequest& add(const GpuRank& rank, const T* in, T* out, hvd_dtype dtype,
                  std::vector<int64_t> shape) {
    shapes.push_back(std::make_unique<std::vector<int64_t>>(std::move(shape)));
    inputs.push_back(rank.described(in, dtype, *shapes.back()));
    outputs.push_back(out);
    request.count = static_cast<int32_t>(inputs.size());
    request.inputs = inputs.data();
    request.outputs = outputs.data();
    return *this;
  }

  hvd_request request{};
  std::vector<std::unique_ptr<std::vector<int64_t>>> shapes{};
  std::vector<hvd_tensor> inputs{};
  std::vector<void*> outputs{};
};

}  // namespace hvd::test
