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
  std::string name{};  ///< the node's own, without its scopes where these do not count
  bool ignores_name_scope = false;
  bool by_iteration = false;  ///< in a loop each iteration has a name of its own
  bool blocking = false;      ///< the thread that runs this waits anyway
  hvd_reduce_op reduce_op = HVD_SUM;
  int32_t tensors = 0;  ///< the first inputs; behind them are the arguments (arguments.h)
  bool has_factors = false, has_process_set = false, has_name = false;

  /// A name without its scopes, where these do not count.
  std::string shown(std::string name) const;
};

/// None after an error, which TensorFlow has been told.
std::optional<Node> read_node(const Collective& op, Construction* construction);

}  // namespace hvd::tf
