// Runs small batches of the progress engine with the algorithms of blocking calls instead of a plan
// and the executor. A small operation then takes little longer than a call on a group.
#pragma once

#include <memory>

#include "core/backend/host/host_backend.h"
#include "core/backend/host/short_cut.h"
#include "core/blocking/ways.h"

namespace hvd {

/// Supports allreduce (except Adasum) and broadcast of any number of tensors. Several tensors are
/// packed into one buffer, if they have at most 4 KiB together. Owned and driven by one thread.
class SmallBatches final : public ShortCut {
 public:
  explicit SmallBatches(const Ways::Rules& rules);
  std::unique_ptr<Run> start(HostBackend& backend, GroupLevels& groups, Batch& batch) override;

 private:
  Ways::Rules rules_;
};

/// Returns the backend for host memory of a job, with the short cut for small batches. In shared
/// memory it is used only if every rank of this host has a core of its own.
std::unique_ptr<HostBackend> host_backend(const Knobs& knobs, bool spare_cores);

}  // namespace hvd
