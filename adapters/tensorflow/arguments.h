// What one execution of a node is told beside its tensors.
//
// These values are inputs, not attributes. In eager mode TensorFlow keeps a kernel for ever for
// each value of an attribute, and names, factors, roots and process sets may change at every call.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/node.h"

namespace hvd::tf {

/// An input that was left out has the value here.
struct Arguments {
  std::string name{};  ///< what ranks match by
  int32_t process_set = 0;
  double prescale = 1, postscale = 1;
  int32_t root = 0;
};

/// Reads the inputs behind the tensors into `arguments`. Returns what is wrong with them; "" when
/// nothing is.
std::string read_arguments(const Node& node, Execution* execution, Arguments& arguments);

/// The process set that an op that answers is asked about, its only input, or the world.
std::string read_process_set(Execution* execution, int32_t& process_set);

}  // namespace hvd::tf
