// The text of `horovodrun --check-build`: the features of this installation.
#pragma once

#include <string>

namespace hvd::launcher {

/// The CPU of the machines on which all tests run. Builds for others are experimental.
inline constexpr const char* kTestedCpu = "x86_64";

/// Asks the Python interpreter beside `program`, or python3 of `path`, which frameworks and
/// bindings it finds. `verbose` adds why a feature cannot be used.
std::string check_build(const std::string& program, const std::string& path, bool verbose);

/// Returns the text for the answers of Python.
struct BuildFacts {
  bool torch = false;
  bool tensorflow = false;
  bool mxnet = false;
  bool mpi = false;    ///< MPI can move tensors; starting ranks by mpirun needs no support
  bool nccl = false;   ///< NCCL was found
  std::string gpus{};  ///< lines about the driver, the GPUs and NCCL
  std::string cpu = kTestedCpu;  ///< as uname() names it
  std::string reasons{};         ///< lines, for verbose
};
std::string check_build_text(const BuildFacts& facts, bool verbose);

}  // namespace hvd::launcher
