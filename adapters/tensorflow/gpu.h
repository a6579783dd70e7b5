// The GPU of a kernel: its number, its stream, and who waits for whom.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/tensorflow/c_api.h"

namespace hvd::tf {

/// How the stream of a kernel is found.
enum class Streams : int {
  automatic = 0,     ///< by the table of gpu_stream.h; if that fails, as `synchronized`
  synchronized = 1,  ///< not at all: the host waits for the GPU
  pluggable = 2,     ///< by TF_GetStream: the GPU is a pluggable device whose streams are CUstreams
  own = 3,           ///< as `automatic`, for a pluggable device too
};

/// Why kernels for GPUs cannot be registered with this TensorFlow, "" if they can.
std::string why_no_gpu_kernels();
/// Called before the first kernel for GPUs runs. `version`: of TensorFlow. `reports`: writes once
/// to standard error how streams are found; a warning is written in any case.
void prepare_gpus(const std::string& version, bool reports);
/// For tests. Called while no kernel for GPUs runs.
void choose_streams(Streams how);

/// Where one execution of a kernel runs.
struct Gpu {
  int32_t index = 0;             ///< as CUDA counts
  void* stream = nullptr;        ///< CUstream
  bool is_synchronized = false;  ///< the stream is not known
};

/// Finds the stream. Returns an error text, "" on success.
std::string find_stream_of(Execution* execution, Gpu& gpu);

/// Sets the number of the GPU by the address of a tensor; nullptr: all tensors are empty.
/// TensorFlow counts the visible GPUs only. Returns an error text, "" on success.
std::string find_number(Execution* execution, const void* address, Gpu& gpu);

/// Waits until the GPU has done all queued work, if the stream is not known. Returns an error text,
/// "" on success.
std::string synchronize(const Gpu& gpu);

}  // namespace hvd::tf
