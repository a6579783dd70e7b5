#include "core/backend/nccl/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "core/backend/nccl/segments.h"
#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/error.h"

namespace hvd::nccl {
namespace {

/// Pinned memory has few sizes, so that it can be used again.
constexpr size_t kPinnedSizes[] = {64 * KiB, 512 * KiB, kSegmentBytes};

size_t pinned_size(size_t bytes) {
  for (const size_t size : kPinnedSizes)
    if (bytes <= size) return size;
  return std::bit_ceil(bytes);
}

}  // namespace

/// Returns its event to the pool. Waits that are queued remain valid.
class Gpu::Point final : public DevicePoint {
 public:
  Point(std::shared_ptr<Gpu> gpu, std::unique_ptr<device::Event> event)
      : gpu_(std::move(gpu)), event_(std::move(event)) {}
  ~Point() override {
    if (::getpid() == gpu_->process_) {
      gpu_->give_back(std::move(event_));
    } else {  // a child of fork(): the mutex may be locked, and the driver cannot be used
      event_.release();
      new std::shared_ptr<Gpu>(gpu_);  // left behind
    }
  }

  void delay(void* stream) const override {
    const OnGpu current(gpu_->context());
    const auto handle = static_cast<device::StreamHandle>(stream);
    if (!gpu_->owns(handle) && device::is_capturing(gpu_->driver(), handle))
      fail(Code::invalid_argument,
           "the stream is being captured into a graph, which must not wait "
           "for an operation of Horovod; end the capture first");
    event_->delay(handle);
  }
  bool reached() const override {
    const OnGpu current(gpu_->context());
    return event_->done();
  }

 private:
  const std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<device::Event> event_;
};

Gpu::Gpu(std::shared_ptr<const device::Driver> driver, int index)
    : process_(::getpid()),
      driver_(std::move(driver)),
      context_(*driver_, index),
      stream_(context_),
      download_stream_(context_),
      kernels_(context_) {}

std::shared_ptr<const DevicePoint> Gpu::point(device::StreamHandle stream) {
  auto event = take_event();
  event->record(stream);
  return std::make_shared<Point>(shared_from_this(), std::move(event));
}

std::unique_ptr<device::Event> Gpu::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      auto taken = std::move(unused_.back());
      unused_.pop_back();
      return taken;
    }
  }
  return std::make_unique<device::Event>(context_, device::EventUse::ordering);
}

void Gpu::give_back(std::unique_ptr<device::Event> event) {
  const std::lock_guard lock(mutex_);
  unused_.push_back(std::move(event));
}

void Gpu::reserve_scratch(size_t bytes) {
  scratch_ = device::DeviceMemory::if_available(context_, bytes);
}

void Gpu::reserve_pinned() {
  for (const size_t size : kPinnedSizes) {
    for (size_t i = 0; i < kPinnedPlaces; ++i) {
      auto made = device::PinnedMemory::if_available(context_, size);
      if (!made) return;  // what a batch lacks is an error then
      pinned_.push_back(std::move(made));
      pinned_sizes_.push_back(size);
    }
  }
}

void Gpu::grow_scratch(size_t bytes) {
  HVD_ASSERT(idle());
  auto larger = std::make_unique<device::DeviceMemory>(context_, bytes);
  if (scratch_) outgrown_.push_back(std::move(scratch_));
  scratch_ = std::move(larger);
}

OwnBuffers Gpu::own_buffers() const {
  OwnBuffers own{.on_device = scratch_bytes()};
  for (const auto& one : outgrown_) own.on_device += one->size();
  for (const size_t size : pinned_sizes_) own.pinned += size;
  return own;
}

// ---- pinned memory

std::shared_ptr<device::PinnedMemory> Gpu::take_pinned(size_t bytes, PinnedLimit limit) {
  const size_t size = pinned_size(bytes);
  auto taken = find_pinned(size, size);
  if (!taken && may_pin(size, limit)) {
    taken = std::make_unique<device::PinnedMemory>(context_, size);
    pinned_sizes_.push_back(size);
  }
  if (!taken) taken = find_pinned(size, SIZE_MAX);
  if (!taken) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    pinned_in_use_ += taken->bytes().size();
  }
  const auto give_back = [gpu = shared_from_this()](device::PinnedMemory* memory) {
    gpu->give_back(std::unique_ptr<device::PinnedMemory>(memory));
  };
  return {taken.release(), give_back};
}

/// Whatever is in use returns, so a few of a size are enough.
bool Gpu::may_pin(size_t size, PinnedLimit limit) const {
  const auto suffices = [=](size_t one) { return one >= size; };
  return limit == PinnedLimit::none || own_buffers().pinned + size <= kMostPinnedBytes ||
         std::ranges::count_if(pinned_sizes_, suffices) < static_cast<ptrdiff_t>(kPinnedPlaces);
}

void Gpu::give_back(std::unique_ptr<device::PinnedMemory> memory) {
  const std::lock_guard lock(mutex_);
  pinned_in_use_ -= memory->bytes().size();
  pinned_.push_back(std::move(memory));
}

std::unique_ptr<device::PinnedMemory> Gpu::find_pinned(size_t least, size_t most) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(pinned_, [=](const auto& memory) {
    return memory->bytes().size() >= least && memory->bytes().size() <= most;
  });
  if (found == pinned_.end()) return nullptr;
  auto taken = std::move(*found);
  pinned_.erase(found);
  return taken;
}

}  // namespace hvd::nccl
