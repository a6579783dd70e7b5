// Which MPI this process can speak, and the plugin for it: by the library that the program has
// loaded already, else by who started the ranks. Loads both when asked, and never before.
#pragma once

#include <string>
#include <vector>

#include "core/backend/mpi/plugin.h"
#include "core/base/knobs.h"

namespace hvd::mpi {

/// MPIs of one kind have the same binary interface, whatever their version.
enum class Kind : uint8_t { open_mpi, mpich };

/// The library of an MPI: names by which it may be found, the likeliest first.
struct Choice {
  Kind kind = Kind::open_mpi;
  std::vector<std::string> libraries;
};

/// By the variables that mpirun leaves; `programs`: what the processes above this one run, the
/// nearest first. Throws Error{invalid_argument} where no mpirun has started this process.
Choice choose_mpi(const Environment& environment, const std::vector<std::string>& programs);

/// The plugin for a kind, as its file is called.
std::string plugin_name(Kind kind);

/// Loads the library and the plugin for it. Throws Error{invalid_argument} that says what is
/// missing, where it was looked for, and what to do.
const Table& load_plugin(const Environment& environment);

}  // namespace hvd::mpi
