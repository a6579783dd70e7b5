// The arguments of one execution of a node besides its tensors.
//
// They are inputs, not attributes. In eager mode TensorFlow caches a kernel forever for each value
// of an attribute, and names, factors, roots and process sets may change at every call.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/node.h"

namespace hvd::tf {

/// The initializers are the values of inputs that are left out.
struct Arguments {
  std::string name{};  ///< ranks match operations by name
  int32_t process_set = 0;
  double prescale = 1, postscale = 1;
  int32_t root = 0;
};

/// Reads the inputs after the tensors into `arguments`. Returns an error text, "" on success.
std::string read_arguments(const Node& node, Execution* execution, Arguments& arguments);

/// Reads the process set of a query op: its only input, by default the world. Returns an error
/// text,
/// "" on success.
std::string read_process_set(Execution* execution, int32_t& process_set);

}  // namespace hvd::tf
