// Memory on GPUs that the ranks of one host share (CUDA IPC): a buffer of this process, which other
// ranks read, and the buffers of those ranks. Only memory of the runtime: that of a framework may
// come from mappings that cannot be shared.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/backend/nccl/gpu.h"
#include "core/backend/nccl/meeting.h"
#include "core/device/reduce_kernels.h"

namespace hvd::nccl {

/// What a rank tells the others of its buffer, exchanged as bytes.
struct IpcCard {
  device::IpcHandle handle{};
  device::DevicePointer address = 0;  ///< in the process of the rank
  uint64_t stamp = 0;                 ///< what the last bytes of the buffer are
  uint32_t is_there = 0;
  ShortText<200> why_not{};
};

/// For the holder of the progress token, with the context current. Destroyed when no work of this
/// process uses it, on any thread.
class IpcMemory {
 public:
  /// While one is read, the next ones are packed and reduced, see IpcMover.
  static constexpr size_t kPlaces = 4;

  /// Takes a buffer of a former job of this process, or allocates one: the GPU should be idle.
  /// Queues the stamp. Throws Error{internal}.
  IpcMemory(std::shared_ptr<Gpu> gpu, size_t place_bytes);
  /// Keeps the buffer for a later job: other processes may have mapped it, so it is not freed.
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  const IpcCard& card() const { return card_; }
  size_t place_bytes() const { return place_bytes_; }
  size_t bytes() const;
  const device::ReduceKernels& kernels() const { return kernels_; }

  enum class Rank : unsigned char { process, thread };
  /// Maps the buffer of a global rank, unless it is mapped. Throws Error{internal}. Rank::thread:
  /// for tests, the rank is a thread of this process.
  void map(int rank, const IpcCard& card, Rank kind);
  /// Queues a read of the stamp of a rank that is mapped, to stamp_at(slot).
  void read_stamp(int rank, size_t slot);
  static constexpr size_t kSlots = device::kMaxSources;
  uint64_t stamp_at(size_t slot) const;
  /// The begin of a place of a rank that is mapped.
  device::DevicePointer place(int rank, size_t index) const {
    return peers_.at(rank).address + index * place_bytes_;
  }

 private:
  struct Exported;
  struct Peer {
    device::DevicePointer address = 0;
    std::unique_ptr<device::ImportedMemory> memory{};  ///< nullptr: of this process
  };
  static std::unique_ptr<Exported> take(const Gpu& gpu, size_t bytes);

  const std::shared_ptr<Gpu> gpu_;
  const size_t place_bytes_;
  const device::ReduceKernels kernels_;
  const device::PinnedMemory stamps_;  ///< those that were read, then the own one
  std::unique_ptr<Exported> own_;
  IpcCard card_;
  std::map<int, Peer> peers_;
};

}  // namespace hvd::nccl
