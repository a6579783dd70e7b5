// What the Python package passes for one operation, field by field
// (python/horovod/mxnet/_library.py).
#pragma once

#include <cstdint>

#include "adapters/mxnet/c_api.h"
#include "horovod/horovod.h"

extern "C" {

/// The arrays belong to the caller. They are dense, in the memory of the CPU, and their shapes are
/// known.
struct hvd_mxnet_request {
  int32_t kind;  ///< hvd_operation_kind: allreduce, broadcast or reducescatter
  int32_t op;    ///< hvd_reduce_op
  double prescale, postscale;
  int32_t root, process_set;
  const char* name;
  int32_t count;     ///< of inputs and of outputs
  int32_t priority;  ///< in MXNet's engine
  hvd::mxnet::Array* const* inputs;
  /// Allreduce, broadcast: the inputs, which are overwritten. Reducescatter: this rank's rows.
  hvd::mxnet::Array* const* outputs;
};
}
