// Converts C requests to requests of the engine or batches for a group, with all checks that do not
// need other ranks.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backends.h"
#include "core/base/knobs.h"
#include "core/engine/process_sets.h"
#include "core/engine/request.h"
#include "horovod/horovod.h"

namespace hvd {

/// The points at which the tensors of one submission are ready: one per stream. Records them on the
/// calling thread. Used by one thread; `backends` must outlive it.
class ReadyPoints {
 public:
  explicit ReadyPoints(const Backends& backends) : backends_(backends) {}

  /// Throws the errors of Backend::mark().
  std::shared_ptr<const DevicePoint> of(const hvd_device& device, void* stream);
  Backend& backend_of(const hvd_device& device) const {
    return backends_.of(static_cast<DeviceKind>(device.type));
  }

 private:
  struct Recorded {
    hvd_device device;
    void* stream;
    std::shared_ptr<const DevicePoint> point;
  };
  const Backends& backends_;
  std::vector<Recorded> recorded_;  ///< few: the streams of one bundle of gradients
};

/// Makes a request for the engine. `rank`: this rank, global. Throws Error{invalid_argument} naming
/// the operation and the problem.
Request make_request(const hvd_request& request, int rank, const ProcessSets& sets,
                     const Knobs& knobs, ReadyPoints& ready);

/// Makes a batch for a call of `rank` within a group of `members`. The caller provides all outputs,
/// and an alltoall has no splits. Throws Error{invalid_argument} as above.
Batch make_batch(const hvd_request& request, int rank, const ProcessSet& members);

/// Transfers the memory of `output` to the caller. `output` still owns the shape.
hvd_tensor released(Output& output);

}  // namespace hvd
