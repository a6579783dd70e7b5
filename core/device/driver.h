// The driver of a kind of GPU: its library, loaded and initialized at the first GPU tensor. Owned
// by the backend of the device; everything else in this folder refers to it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "core/base/operation.h"
#include "core/device/driver_api.h"
#include "core/device/shared_library.h"

namespace hvd::device {

/// Immutable after load(): any thread may use it. It must outlive all objects that refer to it.
class Driver {
 public:
  /// Loads the library of `kind` (cuda or rocm) and initializes it. Blocks for up to a second.
  /// Throws Error{invalid_argument} with what is missing and the remedy: no library, a driver that
  /// cannot be initialized, no GPU that this process may use, a driver that is too old.
  static std::unique_ptr<Driver> load(DeviceKind kind);

  const DriverTable& call() const { return table_; }
  DeviceKind kind() const { return kind_; }
  /// The newest CUDA that the driver supports, 1000 * major + 10 * minor (ROCm: its own number).
  int version() const { return version_; }
  const std::string& path() const { return library_.path(); }
  /// The number of GPUs that this process sees, at least 1.
  int gpu_count() const { return gpu_count_; }

  /// Throws Error{internal} if `result` is not success: "<doing>: <name> (<number>): <text>".
  void check(Result result, const char* doing) const {
    if (result != kSuccess) [[unlikely]]
      fail_call(result, doing);
  }
  /// Returns "<name> (<number>): <text>" as the driver describes it.
  std::string text_of(Result result) const;

  /// Throws Error{invalid_argument} in a child of fork(): a driver cannot be used there. Costs one
  /// system call.
  void require_same_process() const;

 private:
  Driver(DeviceKind kind, SharedLibrary library);
  void fill();
  void initialize();
  [[noreturn]] void fail_call(Result result, const char* doing) const;

  const DeviceKind kind_;
  const SharedLibrary library_;
  DriverTable table_{};
  int version_ = 0;
  int gpu_count_ = 0;
  pid_t process_ = 0;
};

}  // namespace hvd::device
