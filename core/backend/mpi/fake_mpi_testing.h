// An MPI for tests: all ranks live in one thread, and what they begin completes when the last of
// them has begun it. It refuses what a real one would, or would do wrong.
#pragma once

#include <vector>

#include "core/backend/mpi/plugin.h"

namespace hvd::testing {

/// What the fake is asked to do, and did. There is one, since a table has no context.
struct FakeMpi {
  int calls = 0;                ///< operations begun
  const void* input = nullptr;  ///< of the last one
  void* output = nullptr;
  size_t most_bytes = 0;  ///< the largest that a rank sent or received in one
  int communicators = 0;  ///< made and not freed
  bool abandoned = false;
  bool fails = false;  ///< every operation from now on
};
FakeMpi& fake_mpi();
/// As new.
const mpi::Table& fresh_fake_mpi();
/// Who calls make_communicator() next, by what MPI calls it.
void act_as(int mpi_rank);

}  // namespace hvd::testing
