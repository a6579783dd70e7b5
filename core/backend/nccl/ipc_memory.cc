#include "core/backend/nccl/ipc_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace hvd::nccl {
namespace {

constexpr size_t kStampBytes = sizeof(uint64_t);

}  // namespace

/// With a context of its own: it outlives the Gpu of a job.
struct IpcMemory::Exported {
  Exported(std::shared_ptr<const device::Driver> driver_, int index, size_t bytes)
      : driver(std::move(driver_)),
        context(*driver, index),
        memory(context, bytes),
        handle(memory.share()) {}

  /// Those of former jobs. Process-wide, and never freed: processes of the former jobs may have
  /// mapped them until they end.
  struct Unused {
    std::mutex mutex;
    std::vector<std::unique_ptr<Exported>> all;
  };
  static Unused& unused() {
    static auto* const one = new Unused;
    return *one;
  }

  const std::shared_ptr<const device::Driver> driver;
  const device::PrimaryContext context;
  const device::DeviceMemory memory;
  const device::IpcHandle handle;
};

std::unique_ptr<IpcMemory::Exported> IpcMemory::take(const Gpu& gpu, size_t bytes) {
  {
    Exported::Unused& unused = Exported::unused();
    const std::lock_guard lock(unused.mutex);
    const auto found = std::ranges::find_if(unused.all, [&](const auto& one) {
      return one->context.index() == gpu.index() && one->memory.size() == bytes;
    });
    if (found != unused.all.end()) {
      auto taken = std::move(*found);
      unused.all.erase(found);
      return taken;
    }
  }
  return std::make_unique<Exported>(gpu.shared_driver(), gpu.index(), bytes);
}

IpcMemory::IpcMemory(std::shared_ptr<Gpu> gpu, size_t place_bytes)
    : gpu_(std::move(gpu)),
      place_bytes_(place_bytes),
      kernels_(gpu_->context()),
      stamps_(gpu_->context(), kStampBytes * (kSlots + 1)),
      own_(take(*gpu_, kPlaces * place_bytes + kStampBytes)) {
  std::random_device random;
  card_ = {.handle = own_->handle,
           .address = own_->memory.address(),
           .stamp = static_cast<uint64_t>(random()) << 32 | random(),
           .is_there = 1};
  const size_t own_stamp = kSlots * kStampBytes;
  std::memcpy(stamps_.bytes().data() + own_stamp, &card_.stamp, kStampBytes);
  device::copy_async(gpu_->driver(), card_.address + kPlaces * place_bytes_,
                     stamps_.address() + own_stamp, kStampBytes, gpu_->stream());
}

IpcMemory::~IpcMemory() {
  peers_.clear();
  Exported::Unused& unused = Exported::unused();
  const std::lock_guard lock(unused.mutex);
  unused.all.push_back(std::move(own_));
}

size_t IpcMemory::bytes() const { return own_->memory.size(); }

void IpcMemory::map(int rank, const IpcCard& card, Rank kind) {
  if (peers_.contains(rank)) return;
  Peer peer{.address = card.address};
  if (kind == Rank::process) {
    peer.memory = std::make_unique<device::ImportedMemory>(gpu_->context(), card.handle);
    peer.address = peer.memory->address();
  }
  peers_.emplace(rank, std::move(peer));
}

void IpcMemory::read_stamp(int rank, size_t slot) {
  device::copy_async(gpu_->driver(), stamps_.address() + slot * kStampBytes,
                     peers_.at(rank).address + kPlaces * place_bytes_, kStampBytes, gpu_->stream());
}

uint64_t IpcMemory::stamp_at(size_t slot) const {
  uint64_t read = 0;
  std::memcpy(&read, stamps_.bytes().data() + slot * kStampBytes, kStampBytes);
  return read;
}

}  // namespace hvd::nccl
