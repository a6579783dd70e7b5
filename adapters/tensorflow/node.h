// The attributes of a node of a graph. Read once, then used by every execution.
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
  std::string name{};  ///< of the node, without its scopes if ignores_name_scope
  bool ignores_name_scope = false;
  bool by_iteration = false;  ///< in a loop each iteration has its own name
  bool blocking = false;      ///< the calling thread waits in any case
  hvd_reduce_op reduce_op = HVD_SUM;
  int32_t tensors = 0;  ///< number of tensors, the first inputs; then come arguments (arguments.h)
  bool has_factors = false, has_process_set = false, has_name = false;

  /// Returns `name` without its scopes if ignores_name_scope, otherwise unchanged.
  std::string shown(std::string name) const;
};

/// Reads the attributes. Reports an error to TensorFlow and returns nullopt.
std::optional<Node> read_node(const Collective& op, Construction* construction);

}  // namespace hvd::tf
