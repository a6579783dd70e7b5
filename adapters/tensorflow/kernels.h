// Registers the kernels of the ops with TensorFlow.
#pragma once

#include <string>

namespace hvd::tf {

/// For tensors in host memory. Must be called once per process, after register_ops(). Returns an
/// error text, "" on success.
std::string register_kernels();
/// For tensors in CUDA memory; needs why_no_gpu_kernels() to be "". Must be called once per
/// process. Returns an error text, "" on success.
std::string register_gpu_kernels();

}  // namespace hvd::tf
