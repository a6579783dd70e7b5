// Registers the ops and kernels when TensorFlow loads this library, if it is compatible.
#include <chrono>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/completing.h"
#include "adapters/tensorflow/definitions.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/gpu.h"
#include "adapters/tensorflow/gpu_operation.h"
#include "adapters/tensorflow/kernels.h"
#include "horovod/horovod.h"

namespace hvd::tf {
namespace {

std::string register_all() {
  if (!api_problem().empty()) return api_problem();
  if (!done_fits()) return "the std::function of its kernels does not have the layout of libstdc++";
  const std::string problems = register_ops();
  return problems.empty() ? register_kernels() : problems;
}

// Never destroyed: Python may call until the process exits.
const std::string& problem() {
  static const std::string& text = *new std::string(register_all());
  return text;
}

__attribute__((constructor)) void on_load() { problem(); }

}  // namespace
}  // namespace hvd::tf

/// Returns why the ops are not registered, "" if they are. The Python package raises it.
extern "C" HVD_API const char* hvd_tensorflow_problem() { return hvd::tf::problem().c_str(); }

/// Waits, at most for `seconds`, until TensorFlow has completed the nodes of all ended operations.
/// Returns 1 if it has, otherwise 0.
extern "C" HVD_API int hvd_tensorflow_drain(int seconds) {
  return hvd::tf::completions().drain(std::chrono::seconds(seconds)) ? 1 : 0;
}

/// Registers the kernels for GPUs, once. `version`: of TensorFlow. `reports`: writes to standard
/// error how streams are found. Returns why there are none, "" if there are.
extern "C" HVD_API const char* hvd_tensorflow_use_gpus(const char* version, int reports) {
  static const std::string& text = *new std::string([=] {
    std::string why = hvd::tf::why_no_gpu_kernels();
    if (!why.empty()) return why;
    hvd::tf::prepare_gpus(version, reports != 0);
    return hvd::tf::register_gpu_kernels();
  }());
  return text.c_str();
}

/// 1: operations on GPUs complete when the GPU is done; 0: when they are queued there.
extern "C" HVD_API void hvd_tensorflow_wait_for_gpus(int waits) {
  hvd::tf::wait_for_gpus(waits != 0);
}

/// For tests: see Streams.
extern "C" HVD_API void hvd_tensorflow_choose_streams(int how) {
  hvd::tf::choose_streams(static_cast<hvd::tf::Streams>(how));
}
