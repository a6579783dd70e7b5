// Registers the ops with TensorFlow: inputs, outputs, attributes, shapes.
#pragma once

#include <string>

namespace hvd::tf {

/// Must be called once per process: TensorFlow aborts if an op is registered twice. Returns an
/// error text, "" on success.
std::string register_ops();

}  // namespace hvd::tf
