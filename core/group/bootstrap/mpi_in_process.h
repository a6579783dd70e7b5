// Whether the program that we are in uses MPI: it may have a connection to the launcher already, or
// have ended it. Nothing is linked; the library is found if it is loaded.
#pragma once

#include <cstdint>
#include <string>

namespace hvd {

enum class MpiState : uint8_t { never_started, running, finalized };

MpiState mpi_in_process();

/// The library of MPI that this process has loaded, the one that runs if there are several; empty
/// for none.
std::string loaded_mpi_library();

}  // namespace hvd
