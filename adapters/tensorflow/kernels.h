// Registers the kernels of the ops with TensorFlow, for tensors in host memory.
#pragma once

#include <string>

namespace hvd::tf {

/// Must be called once per process, after register_ops(). Returns an error text, "" on success.
std::string register_kernels();

}  // namespace hvd::tf
