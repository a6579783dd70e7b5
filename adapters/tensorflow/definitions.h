// Tells TensorFlow about the ops: inputs, outputs, attributes, shapes.
#pragma once

#include <string>

namespace hvd::tf {

/// Once a process; TensorFlow ends it when an op is registered twice. Returns what went wrong.
std::string register_ops();

}  // namespace hvd::tf
