// What happens when TensorFlow loads this library: it registers itself, if it fits.
#include <chrono>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/completions.h"
#include "adapters/tensorflow/definitions.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/kernels.h"
#include "horovod/horovod.h"

namespace hvd::tf {
namespace {

std::string register_all() {
  if (!api_problem().empty()) return api_problem();
  if (!done_can_be_copied())
    return "its kernels end by a std::function that is laid out in another way than ours";
  const std::string problems = register_ops();
  return problems.empty() ? register_kernels() : problems;
}

// Never destroyed: Python may ask until the end.
const std::string& problem() {
  static const std::string& text = *new std::string(register_all());
  return text;
}

__attribute__((constructor)) void on_load() { problem(); }

}  // namespace
}  // namespace hvd::tf

/// Why the ops are not there; "" when they are. For the Python package, which says it.
extern "C" HVD_API const char* hvd_tensorflow_problem() { return hvd::tf::problem().c_str(); }

/// Waits, `seconds` at most, until all nodes whose operations have ended have ended too; 1 if so.
extern "C" HVD_API int hvd_tensorflow_drain(int seconds) {
  return hvd::tf::Completions::instance().drain(std::chrono::seconds(seconds)) ? 1 : 0;
}
