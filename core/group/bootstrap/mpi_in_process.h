// Whether the program that we are in uses MPI: it may have a connection to the launcher already, or
// have ended it. Nothing is linked; the library is found if it is loaded.
#pragma once

#include <cstdint>

namespace hvd {

enum class MpiState : uint8_t { never_started, running, finalized };

MpiState mpi_in_process();

}  // namespace hvd
