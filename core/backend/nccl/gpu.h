// The GPU of this process: its context, the streams of the runtime, the copy kernels, a pool of
// events, scratch and pinned memory. Shared by the backend and by points that outlive it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/bytes.h"
#include "core/device/copy_kernels.h"
#include "core/device/memory.h"
#include "core/device/stream.h"

namespace hvd::nccl {

/// Makes the context of a GPU current on this thread, and keeps captures of other threads valid.
class OnGpu {
 public:
  explicit OnGpu(const device::PrimaryContext& context)
      : scope_(context), relaxed_(context.driver()) {}

 private:
  device::ContextScope scope_;
  device::RelaxedCapture relaxed_;
};

enum class PinnedLimit : unsigned char { most, none };

/// Any thread may call point(); the other functions are for the holder of the progress token, with
/// the context current.
class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  /// Retains the context of GPU `index`. Throws as PrimaryContext.
  Gpu(std::shared_ptr<const device::Driver> driver, int index);

  const device::Driver& driver() const { return *driver_; }
  const std::shared_ptr<const device::Driver>& shared_driver() const { return driver_; }
  const device::PrimaryContext& context() const { return context_; }
  int index() const { return context_.index(); }
  device::StreamHandle stream() const { return stream_.handle(); }
  /// For copies to pinned memory, which run beside those in the other direction.
  device::StreamHandle download_stream() const { return download_stream_.handle(); }
  bool owns(device::StreamHandle stream) const {
    return stream == stream_.handle() || stream == download_stream_.handle();
  }
  const device::CopyKernels& kernels() const { return kernels_; }
  /// Whether all work of the runtime is done.
  bool idle() const { return stream_.idle() && download_stream_.idle(); }

  /// Returns the point after all work that is queued on `stream` now. The context must be current.
  std::shared_ptr<const DevicePoint> point(device::StreamHandle stream);

  /// Allocates what batches need, if it is available, before any work is queued: later the driver
  /// may wait for work of the GPU when it allocates. Only for the thread that has made this object.
  void reserve_scratch(size_t bytes);
  void reserve_pinned();

  device::DevicePointer scratch() const { return scratch_ ? scratch_->address() : 0; }
  size_t scratch_bytes() const { return scratch_ ? scratch_->size() : 0; }
  /// Replaces the scratch memory. Requires idle(), see reserve_scratch(). The former one is freed
  /// at the end: the driver waits for work of the GPU, also of the framework, when it frees.
  void grow_scratch(size_t bytes);

  /// Returns pinned host memory of at least `bytes`. With a limit, returns nullptr if too much is
  /// allocated, and some is in use: that returns when work on the GPU has ended. It returns to the
  /// pool when the last reference ends, on any thread, and no work may use it then.
  std::shared_ptr<device::PinnedMemory> take_pinned(size_t bytes, PinnedLimit limit);
  /// The limit of what is allocated, except that there may be kPinnedPlaces of every size.
  static constexpr size_t kMostPinnedBytes = 32 * MiB;
  static constexpr size_t kPinnedPlaces = 3;  ///< segments of a batch at a time

  OwnBuffers own_buffers() const;

 private:
  class Point;
  std::unique_ptr<device::Event> take_event();
  void give_back(std::unique_ptr<device::Event> event);
  std::unique_ptr<device::PinnedMemory> find_pinned(size_t least, size_t most);
  bool may_pin(size_t size, PinnedLimit limit) const;
  void give_back(std::unique_ptr<device::PinnedMemory> memory);

  const pid_t process_;
  const std::shared_ptr<const device::Driver> driver_;
  const device::PrimaryContext context_;
  const device::Stream stream_, download_stream_;
  const device::CopyKernels kernels_;
  std::unique_ptr<device::DeviceMemory> scratch_;
  std::vector<std::unique_ptr<device::DeviceMemory>> outgrown_;  ///< former scratch memory
  std::vector<size_t> pinned_sizes_;                             ///< of all that is allocated

  std::mutex mutex_;
  size_t pinned_in_use_ = 0;                                   ///< under mutex_
  std::vector<std::unique_ptr<device::PinnedMemory>> pinned_;  ///< unused; under mutex_
  std::vector<std::unique_ptr<device::Event>> unused_;         ///< under mutex_
};

}  // namespace hvd::nccl
