// The threads that complete nodes of TensorFlow: they call `done`, which is usually short.
#pragma once

#include "adapters/common/completions.h"

namespace hvd::tf {

/// The instance of this process.
adapter::Completions& completions();

}  // namespace hvd::tf
