// One node of a graph: what its attributes ask for. Made once, then read by every execution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/op.h"
#include "horovod/horovod.h"

namespace hvd::tf {

struct Node {
  Collective op;
  std::string name;  ///< what ranks match by
  int32_t process_set = 0;
  hvd_reduce_op reduce_op = HVD_SUM;
  double prescale = 1, postscale = 1;
  int32_t root = 0;
  bool blocking = false;  ///< the thread that runs this waits anyway
};

/// None after an error, which TensorFlow has been told.
std::optional<Node> read_node(const Collective& op, Construction* construction);
/// The same for the only attribute of an op that answers.
std::optional<int32_t> read_process_set(Construction* construction);

}  // namespace hvd::tf
