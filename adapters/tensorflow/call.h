// One execution of a node, from its inputs to TensorFlow's `done`.
#pragma once

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/node.h"

namespace hvd::tf {

/// Where the tensors of a kernel are.
enum class Place : bool { host, gpu };

/// Starts an execution. Does not wait for its end unless the node is `blocking`. Calls `done`
/// exactly once, on any thread, after the outputs or an error are set in `execution`.
void start_call(const Node& node, Execution* execution, Place place, Done done);

}  // namespace hvd::tf
