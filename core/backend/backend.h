// Batches and the backends that run them. A Backend moves the data of agreed operations over one
// Group. It does not depend on names, negotiation or frameworks. The backends `host` and `mpi` are
// for host memory, `nccl` is for the memory of NVIDIA GPUs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/base/assert.h"
#include "core/base/operation.h"
#include "core/base/progress.h"
#include "core/base/route.h"
#include "core/base/shape.h"
#include "core/group/group.h"

namespace hvd {

/// A point in the work that is queued on a stream of a device. Any thread may use it.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  /// Work that is queued on `stream` later waits for the point on the device. The host does not
  /// wait. `stream`: of the same device; a native handle, as in hvd_tensor.
  virtual void delay(void* stream) const = 0;
  /// Whether all work before the point is done. Does not block.
  virtual bool reached() const = 0;
};

/// Memory on a device that a caller has allocated for an output.
struct DeviceOutput {
  std::byte* data = nullptr;
  std::shared_ptr<const DevicePoint> ready{};  ///< the memory may be written after this point
};

/// An output that is allocated during the run, because its size depends on the inputs of all ranks.
struct Gathered {
  AlignedBuffer memory;  ///< in host memory, allocated by the backend
  Shape shape;
  /// Allocates the output on a device, whose memory belongs to the caller. Called once, by the
  /// holder of the progress token. Throws Error{internal}.
  std::function<DeviceOutput(const Shape&)> allocate{};
};

/// One contiguous tensor of a batch. The Request owns the memory. Tensors may share memory.
struct BatchTensor {
  const std::byte* input =
      nullptr;  ///< nullptr: this rank has joined and contributes the neutral element
  /// allreduce, broadcast: as large as the input, may equal it. reducescatter: the rows of this
  /// rank. allgather, alltoall: nullptr, see `gathered`; if not, every rank sends the same number
  /// of rows and the exchange of row counts is skipped.
  std::byte* output = nullptr;
  Shape shape{};                        ///< of the input
  Gathered* gathered = nullptr;         ///< allgather, alltoall: receives the output
  std::vector<int32_t> splits{};        ///< alltoall: rows for each rank of the group
  Gathered* received_splits = nullptr;  ///< alltoall: rows from each rank, int32
  /// Device memory: input and output may be used after this point.
  std::shared_ptr<const DevicePoint> ready{};
  /// allreduce in device memory: the type of the elements of input and output, if it is not that of
  /// the operation. The backend converts them.
  std::optional<DType> stored_as{};
};

/// Memory of tensors that work on a device uses, even after its run has been cancelled. Ends the
/// loan when it is destroyed, on any thread.
class Loans {
 public:
  Loans() = default;
  ~Loans() {
    for (const auto& release : releases_) release();
  }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  void add(std::function<void()> release) { releases_.push_back(std::move(release)); }

 private:
  std::vector<std::function<void()>> releases_;
};

/// Operations that run as one. Everything is equal on all ranks except addresses, `splits`, and
/// `tensors[].shape[0]` of an allgather or alltoall.
struct Batch {
  uint64_t sequence = 0;  ///< number of the batch within the job
  Operation operation{};  ///< one that moves tensors; the root is a rank within the group
  std::vector<BatchTensor> tensors{};
  std::shared_ptr<Loans> loans{};  ///< device memory: of the tensors; nullptr in host memory

  /// Runs of a host backend that a run on a device is composed of have the same sequence number.
  /// Each has a part of its own.
  struct Part {
    uint32_t index = 0;
    uint32_t count = 1;
  };
  Part part{};
};

/// One batch in progress. Owned and driven by one thread.
class Run {
 public:
  /// Cancels the run if it is not done. Does not access the memory of the tensors afterwards,
  /// unless it is on a device: then as long as Batch::loans exists.
  virtual ~Run() = default;
  /// Moves about one segment. Does not block. Throws Error{peer_lost}.
  ///
  /// Returns `launched` if all remaining work is queued on a device. The engine then starts the
  /// next batches, of this and other backends, while the device works. It keeps the Run, and
  /// advance() only tests whether the device is done: it returns `launched` or `done`. Launched
  /// runs may end in any order. The engine calls advance() in every turn, and wakes for it, see
  /// Backend::poll_interval().
  virtual Progress advance() = 0;

  /// After advance() has returned `launched`: the point at which the results are complete, if
  /// callers can wait for it. The operations of the batch then complete at once. nullptr: they
  /// complete when advance() returns `done`.
  virtual std::shared_ptr<const DevicePoint> result() const { return nullptr; }

  /// The activity of the next advance(), for observers.
  enum class Activity : uint8_t {
    meeting,  ///< the ranks agree how they move data, and connect their devices
    sizes,    ///< the ranks exchange sizes
    outputs,  ///< outputs are allocated
    data,     ///< data is moved
  };
  virtual Activity activity() const { return Activity::data; }
  /// How the next advance() moves data, for observers; after the last one, how it was moved.
  virtual Route route() const { return {}; }
};

/// Bytes that a backend has allocated for itself.
struct OwnBuffers {
  uint64_t on_device = 0;
  uint64_t pinned = 0;  ///< in host memory, for copies from and to the device
};

/// Moves the tensors of one kind of device. Owned by the engine.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // ---- for the holder of the progress token

  /// Starts a batch. `groups` and the memory of the tensors must outlive the Run.
  virtual std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) = 0;
  /// Announces the group of these global ranks (ascending). Its address may be that of a former
  /// group.
  virtual void enter(const GroupLevels& /*groups*/, const std::vector<int>& /*ranks*/) {}
  /// Announces the group of two ranks that exchange messages. make_group() is not called for it.
  virtual void enter_pair(const GroupLevels& groups, const std::vector<int>& ranks) {
    enter(groups, ranks);
  }
  /// Called after the loss of a rank, also after end_device_work(). The backend must not call
  /// anything that may wait for it. Must not block.
  virtual void abandon() {}
  /// Called at the end of the job, when no run is left: by all ranks at about the same time, or
  /// after abandon(), when every operation has its error. Begins to end what the devices still do.
  /// Must not block.
  virtual void end_device_work() {}
  /// After end_device_work(): whether it has ended, or never will. Must not block.
  virtual bool has_ended_device_work() const { return true; }
  /// Whether the backend uses the levels of a group (GroupLevels::host, across).
  virtual bool uses_levels() const { return false; }
  /// How long the engine may sleep during a run, if nothing wakes it when the run can continue.
  /// nullopt: it is woken.
  virtual std::optional<std::chrono::nanoseconds> poll_interval() const { return std::nullopt; }

  virtual OwnBuffers own_buffers() const { return {}; }

  // ---- for threads that submit, several at a time

  /// Returns the point after all work that is queued on `stream` of device `index` now. Prepares
  /// the device at its first use. May block for seconds then. Throws Error{invalid_argument} if the
  /// device cannot be used, or if the stream is being captured.
  virtual std::shared_ptr<const DevicePoint> mark(int /*index*/, void* /*stream*/) {
    HVD_ASSERT(false && "memory on a device");
  }

  // ---- for any other thread, one at a time

  /// Prepares a group of `ranks`, which include this rank. Collective over `ranks`. May block; runs
  /// on the group wait until it is prepared. Groups that share ranks must be made in the same order
  /// on all ranks. Throws Error{internal}.
  virtual void make_group(const std::vector<int>& /*ranks*/) {}
  /// Frees the group. No run on it may be left.
  virtual void free_group(const std::vector<int>& /*ranks*/) {}
};

}  // namespace hvd
