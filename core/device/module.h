// Kernels of a module, and their launch. Made on any thread; launched with the context current.
#pragma once

#include <array>
#include <tuple>

#include "core/device/context.h"

namespace hvd::device {

struct Grid {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;  ///< per block
};

/// A kernel. A value; valid as long as its Module.
class Kernel {
 public:
  Kernel() = default;
  Kernel(const Driver& driver, FunctionHandle handle) : driver_(&driver), handle_(handle) {}

  /// Queues the kernel. The arguments must have exactly the types of its parameters; they are
  /// copied. Throws Error{internal}.
  template <class... Arguments>
  void launch(const Grid& grid, StreamHandle stream, const Arguments&... arguments) const {
    std::array<void*, sizeof...(Arguments)> addresses{
        const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_with(grid, stream, addresses.data());
  }

 private:
  void launch_with(const Grid& grid, StreamHandle stream, void** arguments) const;

  const Driver* driver_ = nullptr;
  FunctionHandle handle_ = nullptr;
};

/// Code that the driver has compiled for a GPU, from PTX. It stays loaded as long as the context.
class Module {
 public:
  /// `image`: PTX, ends with a zero byte. May take tens of milliseconds. Throws Error{internal}.
  Module(const PrimaryContext& context, const char* image);

  /// Throws Error{internal} if the module has no kernel of that name.
  Kernel kernel(const char* name) const;

 private:
  const PrimaryContext& context_;
  ModuleHandle handle_ = nullptr;
};

}  // namespace hvd::device
