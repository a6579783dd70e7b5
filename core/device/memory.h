// Memory that the GPU reads and writes: of its own, pinned host memory, and memory of another
// process. Objects are made and destroyed on any thread.
//
// Nothing may be destroyed while queued work uses it, and no memory while a collective runs: the
// driver may then wait for the collective, whose peers may be lost.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/device/context.h"

namespace hvd::device {

/// Memory of a GPU.
class DeviceMemory {
 public:
  /// Throws Error{internal} with the free and the total bytes of the GPU if there is too little.
  DeviceMemory(const PrimaryContext& context, size_t bytes);
  /// Returns nullptr if there is too little.
  static std::unique_ptr<DeviceMemory> if_available(const PrimaryContext& context, size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  DevicePointer address() const { return address_; }
  size_t size() const { return bytes_; }
  /// For ImportedMemory in another process of this host.
  IpcHandle share() const;

 private:
  DeviceMemory(const PrimaryContext& context, size_t bytes, DevicePointer allocated)
      : context_(context), bytes_(bytes), address_(allocated) {}

  const PrimaryContext& context_;
  const size_t bytes_;
  DevicePointer address_ = 0;
};

/// DeviceMemory of another process.
class ImportedMemory {
 public:
  ImportedMemory(const PrimaryContext& context, const IpcHandle& handle);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  DevicePointer address() const { return address_; }

 private:
  const PrimaryContext& context_;
  DevicePointer address_ = 0;
};

/// Host memory that asynchronous copies can use, allocated by the driver.
class PinnedMemory {
 public:
  /// Throws Error{internal} with the limit of locked memory.
  PinnedMemory(const PrimaryContext& context, size_t bytes);
  /// Returns nullptr instead.
  static std::unique_ptr<PinnedMemory> if_available(const PrimaryContext& context, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  DevicePointer address() const { return reinterpret_cast<DevicePointer>(data_); }

 private:
  PinnedMemory(const PrimaryContext& context, size_t bytes, void* allocated)
      : context_(context), bytes_(bytes), data_(static_cast<std::byte*>(allocated)) {}

  const PrimaryContext& context_;
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

/// Pins existing host memory, such as a segment that ranks share. The owner must keep it mapped.
class PinnedRange {
 public:
  /// Throws Error{internal} with the limit of locked memory.
  PinnedRange(const PrimaryContext& context, std::span<std::byte> bytes);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  const PrimaryContext& context_;
  const std::span<std::byte> bytes_;
};

// ---- queued work; the context must be current

/// Copies between memories of GPUs and pinned memory, in any direction.
void copy_async(const Driver& driver, DevicePointer to, DevicePointer from, size_t bytes,
                StreamHandle stream);
void fill_async(const Driver& driver, DevicePointer to, unsigned char value, size_t bytes,
                StreamHandle stream);
/// Whether `address` is memory of GPU `device`. The context must be current.
bool is_memory_of(const PrimaryContext& context, DevicePointer address);

}  // namespace hvd::device
