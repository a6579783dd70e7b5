// The text of `horovodrun --check-build`: what this installation can do.
#pragma once

#include <string>

namespace hvd::job {

/// Asks the Python interpreter beside `program`, or python3 of `path`, which frameworks and
/// bindings it finds. With `verbose`, why something cannot be used.
std::string check_build(const std::string& program, const std::string& path, bool verbose);

/// The layout, for what Python answered.
struct BuildFacts {
  bool torch = false;
  bool tensorflow = false;
  bool mxnet = false;
  bool mpi = false;       ///< can move tensors; that it can start ranks needs nothing
  std::string reasons{};  ///< lines, for verbose
};
std::string check_build_text(const BuildFacts& facts, bool verbose);

}  // namespace hvd::job
