// Gives TensorFlow the kernels of the ops, for tensors in host memory.
#pragma once

#include <string>

namespace hvd::tf {

/// Once a process, after the ops are registered. Returns what went wrong.
std::string register_kernels();

}  // namespace hvd::tf
