// Whether this process uses MPI, which may have opened or closed its connection to the launcher.
// MPI is not linked: its library is searched among the loaded ones.
#pragma once

#include <cstdint>
#include <string>

namespace hvd {

enum class MpiState : uint8_t { never_started, running, finalized };

MpiState mpi_in_process();

/// The path of the loaded MPI library; of several, the one that is initialized. Empty if none.
std::string loaded_mpi_library();

}  // namespace hvd
