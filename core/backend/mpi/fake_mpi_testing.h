// A fake MPI for tests. All ranks share one thread. An operation completes when the last rank has
// started it. Returns an error for calls that a real MPI would reject or run incorrectly.
#pragma once

#include <vector>

#include "core/backend/mpi/plugin.h"

namespace hvd::test {

/// Settings and statistics of the fake. A global, since a table has no context.
struct FakeMpi {
  int calls = 0;                ///< operations started
  const void* input = nullptr;  ///< of the last operation
  void* output = nullptr;
  size_t most_bytes = 0;  ///< maximum that a rank sent or received in one operation
  int communicators = 0;  ///< not freed yet
  bool abandoned = false;
  bool fails = false;  ///< every operation fails from now on
};
FakeMpi& fake_mpi();
/// Resets the fake and returns its table.
const mpi::Table& fresh_fake_mpi();
/// Sets the MPI rank of the next caller of make_communicator().
void act_as(int mpi_rank);

}  // namespace hvd::test
