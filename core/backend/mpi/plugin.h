// Between the core and one MPI: a table of functions that speak no type of MPI's. What implements
// it (plugin.cc) is compiled once for each MPI that is found, into a library of its own that is
// loaded only where HOROVOD_CPU_OPERATIONS=mpi asks for it, so that the core links to none.
//
// All functions but those of facts return 0, or an error of MPI that describe() has a text for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::mpi {

/// Raised whenever anything below changes: both sides must have the same.
inline constexpr int kTableVersion = 1;
inline constexpr const char* kTableFunction = "hvd_mpi_table";

/// A communicator or a request, as the plugin knows it.
using Handle = intptr_t;

/// target[i] = target[i] op other[i], for what MPI has no type for. The numbers are those of DType
/// and ReduceOp.
using Reduce = void (*)(void* target, const void* other, size_t elements, int dtype, int op);

/// This process among all that the launcher started.
struct Facts {
  int rank;
  int size;
  int any_thread;  ///< 1: MPI may be called by several threads at a time
  int begun_here;  ///< 1: not by the program itself
};

/// Counts and displacements are borrowed until the request is complete, like all memory.
struct Table {
  int version;
  const char* (*library)();  ///< what the MPI calls itself

  /// Begins MPI, or joins the one that runs already. If it was begun here it ends with the process.
  int (*start)(Reduce reduce, Facts* facts);
  /// MPI cannot go on in this process: requests are left behind, and MPI does not end orderly.
  void (*abandon)();
  int (*is_abandoned)();
  void (*describe)(int error, char* text, size_t capacity);

  /// Collective over the ranks, which are those of Facts, ascending or not; blocks. Several at a
  /// time from different threads, on one process in the same order.
  int (*make_communicator)(const int* ranks, int count, Handle* made);
  int (*free_communicator)(Handle communicator);

  /// Input and output are never the same memory.
  int (*allreduce)(Handle communicator, const void* input, void* output, int count, int dtype,
                   int op, Handle* request);
  /// Reduces `counts` [rank] elements that lie end to end; `output` is what this rank gets of them.
  int (*reduce_scatter)(Handle communicator, const void* input, void* output, const int* counts,
                        int dtype, int op, Handle* request);
  int (*broadcast)(Handle communicator, void* data, int bytes, int root, Handle* request);
  /// Bytes, as the next one.
  int (*allgather)(Handle communicator, const void* input, int bytes, void* output,
                   const int* counts, const int* displacements, Handle* request);
  int (*alltoall)(Handle communicator, const void* input, const int* send_counts,
                  const int* send_displacements, void* output, const int* receive_counts,
                  const int* receive_displacements, Handle* request);
  /// `done`: the request is complete, and is none any more.
  int (*test)(Handle* request, int* done);
};

}  // namespace hvd::mpi

extern "C" {
/// What a plugin exports under kTableFunction.
const hvd::mpi::Table* hvd_mpi_table();
}
