// The interface between the core and an MPI library: a table of functions without types of MPI. The
// implementation (plugin.cc) is compiled once per MPI that is found, into a separate library. It is
// loaded only for HOROVOD_CPU_OPERATIONS=mpi, so the core does not link to MPI.
//
// Functions that return int return 0 or an error code of MPI, for which describe() has a text. The
// exception is is_abandoned().
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::mpi {

/// Increase it with every change below. Core and plugin must have the same version.
inline constexpr int kTableVersion = 1;
inline constexpr const char* kTableFunction = "hvd_mpi_table";

/// A communicator or request of the plugin.
using Handle = intptr_t;

/// target[i] = target[i] op other[i], for types that MPI does not support. `dtype` and `op`: values
/// of DType and ReduceOp.
using Reduce = void (*)(void* target, const void* other, size_t elements, int dtype, int op);

/// This process in MPI_COMM_WORLD.
struct Facts {
  int rank;
  int size;
  int any_thread;  ///< 1: several threads may call MPI concurrently (MPI_THREAD_MULTIPLE)
  int begun_here;  ///< 1: the plugin has initialized MPI, not the program
};

/// All memory, also counts and displacements, must stay valid until the request is complete.
struct Table {
  int version;
  const char* (*library)();  ///< name and version of the MPI library

  /// Initializes MPI unless it is initialized already. If so, MPI is finalized when the process
  /// exits.
  int (*start)(Reduce reduce, Facts* facts);
  /// Marks MPI as unusable in this process: requests are leaked and MPI is not finalized.
  void (*abandon)();
  int (*is_abandoned)();
  void (*describe)(int error, char* text, size_t capacity);

  /// Collective over `ranks` (of MPI_COMM_WORLD, in any order); blocks. Several threads may call it
  /// concurrently. Calls that share processes must have the same order on all of them.
  int (*make_communicator)(const int* ranks, int count, Handle* made);
  int (*free_communicator)(Handle communicator);

  /// Input and output must not overlap.
  int (*allreduce)(Handle communicator, const void* input, void* output, int count, int dtype,
                   int op, Handle* request);
  /// Reduces contiguous blocks of `counts` [rank] elements. `output` receives the block of this
  /// rank.
  int (*reduce_scatter)(Handle communicator, const void* input, void* output, const int* counts,
                        int dtype, int op, Handle* request);
  int (*broadcast)(Handle communicator, void* data, int bytes, int root, Handle* request);
  /// Counts and displacements of allgather and alltoall are in bytes.
  int (*allgather)(Handle communicator, const void* input, int bytes, void* output,
                   const int* counts, const int* displacements, Handle* request);
  int (*alltoall)(Handle communicator, const void* input, const int* send_counts,
                  const int* send_displacements, void* output, const int* receive_counts,
                  const int* receive_displacements, Handle* request);
  /// Sets `done` to 1 if the request is complete; the request is then freed.
  int (*test)(Handle* request, int* done);
};

}  // namespace hvd::mpi

extern "C" {
/// Exported by a plugin under the name kTableFunction.
const hvd::mpi::Table* hvd_mpi_table();
}
