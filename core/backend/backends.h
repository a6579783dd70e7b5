// The backends of a process, one per kind of device that it can use.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/assert.h"

namespace hvd {

/// Owns the backends. Host memory always has one. Backends must outlive their runs.
class Backends {
 public:
  explicit Backends(std::unique_ptr<Backend> host) { add(DeviceKind::host, std::move(host)); }

  void add(DeviceKind kind, std::unique_ptr<Backend> backend) {
    HVD_ASSERT(backend != nullptr && slot(kind) == nullptr);
    slot(kind) = std::move(backend);
  }
  /// The backend for `kind`, which must be one that submission accepts.
  Backend& of(DeviceKind kind) const {
    const auto& backend = by_kind_[static_cast<size_t>(kind)];
    HVD_ASSERT(backend != nullptr);
    return *backend;
  }
  Backend& host() const { return of(DeviceKind::host); }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& backend : by_kind_) {
      if (backend) visit(*backend);
    }
  }

 private:
  std::unique_ptr<Backend>& slot(DeviceKind kind) { return by_kind_[static_cast<size_t>(kind)]; }

  std::array<std::unique_ptr<Backend>, static_cast<size_t>(kLastDeviceKind) + 1> by_kind_{};
};

/// Called once, by the engine, which owns the result.
using MakeBackends = std::function<Backends()>;

}  // namespace hvd
