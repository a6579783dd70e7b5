// Chooses the MPI library of this process and loads it with its plugin. The choice depends on the
// MPI library that the program has loaded, or otherwise on the launcher of the ranks.
#pragma once

#include <string>
#include <vector>

#include "core/backend/mpi/plugin.h"
#include "core/base/knobs.h"

namespace hvd::mpi {

/// MPIs of one kind have the same binary interface, whatever their version.
enum class Kind : uint8_t { open_mpi, mpich };

/// An MPI library: candidate names or paths, in the order in which they are tried.
struct Choice {
  Kind kind = Kind::open_mpi;
  std::vector<std::string> libraries;
};

/// Chooses by the environment variables of mpirun. `programs`: executables of the ancestors of this
/// process, nearest first. Throws Error{invalid_argument} if mpirun has not started this process.
Choice choose_mpi(const Environment& environment, const std::vector<std::string>& programs);

/// Returns the file name of the plugin for a kind.
std::string plugin_name(Kind kind);

/// Loads the library and its plugin. Throws Error{invalid_argument} with the missing file, the
/// searched paths and the remedy.
const Table& load_plugin(const Environment& environment);

}  // namespace hvd::mpi
