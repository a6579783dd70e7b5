// A fast path for small batches, which the host backend tries first. core/blocking implements one.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace hvd {

class HostBackend;

/// Owned and driven by one thread.
class ShortCut {
 public:
  virtual ~ShortCut() = default;
  /// Starts `batch`, or returns nullptr and leaves it unchanged if it is not suitable. All ranks of
  /// the group choose alike. `backend`: the one that tries this, for its plans. The outputs of the
  /// batch must not overlap other memory. `groups` and the memory of the tensors must outlive the
  /// Run. Throws std::bad_alloc.
  virtual std::unique_ptr<Run> start(HostBackend& backend, GroupLevels& groups, Batch& batch) = 0;
};

}  // namespace hvd
