// The result of an operation, kept until TensorFlow gets it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::tf {

using Dims = std::vector<int64_t>;

/// Outputs are in memory of the runtime until TensorFlow takes them; `data` is nullptr for those
/// that TensorFlow has allocated.
struct Ending {
  struct Output {
    void* data;
    Dims dims;
    hvd_dtype dtype;
  };
  hvd_status status = HVD_OK;
  std::string text{};
  std::vector<Output> outputs{};
  int32_t last_joined = 0;

  void add(const hvd_tensor& output) {
    outputs.push_back(
        {output.data, Dims(output.shape, output.shape + output.dimensions), output.dtype});
  }
};

/// What a call of the interface has just returned.
inline Ending failure(hvd_status status) { return {.status = status, .text = hvd_last_error()}; }

/// Copies what a callback of the runtime gets.
inline Ending copy_of(const hvd_ending& theirs) {
  Ending ending{.status = theirs.status, .text = theirs.text, .last_joined = theirs.last_joined};
  for (int32_t i = 0; i < theirs.output_count; ++i) ending.add(theirs.outputs[i]);
  return ending;
}

}  // namespace hvd::tf
