// One execution of a node, from its inputs to TensorFlow's `done`.
#pragma once

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/node.h"

namespace hvd::tf {

/// Returns at once (a node that is `blocking`: at the end); `done` is called exactly once, when
/// the outputs or an error are in `execution`, perhaps by the runtime's thread.
void start_call(const Node& node, Execution* execution, Done done);

}  // namespace hvd::tf
