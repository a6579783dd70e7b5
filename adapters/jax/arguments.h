// What a call of the custom call target says beside its tensors: the attributes of its node.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/jax/c_api.h"
#include "horovod/horovod.h"

namespace hvd::xla {

struct Arguments {
  hvd_operation operation{};
  int32_t process_set = 0;
  std::string name{};  ///< ranks match operations by name
};

/// Reads the attributes, which the Python package writes. Unknown ones are ignored.
Arguments read_arguments(const Attributes& attributes);

}  // namespace hvd::xla
