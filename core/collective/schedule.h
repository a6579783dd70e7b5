// Schedules: what each rank sends, receives and merges in each phase, as pure data. An algorithm is
// a function (rank, size) -> Schedule over chunk numbers; a Layout maps chunks to bytes, so uneven
// sizes need no separate algorithms. schedule_test.cc verifies each algorithm on all ranks for
// sizes 1 to 64 by tracking the contributions in each chunk.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/route.h"

namespace hvd {

/// Consecutive chunks, without wrapping.
struct ChunkRange {
  int first = 0;
  int count = 0;
  bool operator==(const ChunkRange&) const = default;
};

enum class Merge : uint8_t {
  replace,  ///< the received chunks replace the content
  /// All `reduce` receives of a phase into the same range are combined with this rank's own content
  /// in ascending order of rank, so that ranks that reduce the same contributions get the same
  /// bits.
  reduce,
};

/// `base`: the first chunk of the sender's buffer in this phase; the buffer holds the chunks from
/// `base` to the last one sent. Equal on sender and receiver.
struct Send {
  int peer = 0;
  ChunkRange range;
  int base = 0;
  bool operator==(const Send&) const = default;
};
struct Receive {
  int peer = 0;
  ChunkRange range;
  Merge merge = Merge::replace;
  int base = 0;
  /// reduce: the number of ranks whose contributions are in the received data.
  int contributions = 1;
  bool operator==(const Receive&) const = default;
};

/// Sends use the chunks' content at the start of the phase; receives are merged when all have
/// arrived.
struct Phase {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  bool operator==(const Phase&) const = default;
};

struct Schedule {
  Algorithm algorithm = Algorithm::none;  ///< for observers
  int chunks = 1;
  std::vector<Phase> phases{};  ///< equally many on every rank; a rank may be idle in a phase
  /// The maximum number of chunks in a rank's buffer in any phase, equal on every rank: a unit is
  /// divided by this number.
  int room_chunks = 1;
  bool operator==(const Schedule&) const = default;
};

// Allreduce.
/// Reduce-scatter and allgather by direct exchange: each rank reduces its own chunk from all peers,
/// then reads all chunks. Two phases; every byte is moved once. For shared memory.
Schedule direct_allreduce(int rank, int size);
/// Each rank reads all data of all ranks and reduces it: one phase, for small payloads and for two
/// ranks that share memory.
Schedule one_shot_allreduce(int rank, int size);
/// Ring (Patarasuk & Yuan, 2009): every rank sends 2 (size - 1) / size of the buffer.
Schedule ring_allreduce(int rank, int size);
/// Recursive doubling (Thakur, Rabenseifner, Gropp, 2005). Ranks beyond the largest power of two
/// send to a partner before and receive the result after.
Schedule recursive_doubling_allreduce(int rank, int size);
/// Leader-based pre-reduction: the first of every `together` consecutive ranks reduces their data,
/// the leaders run recursive doubling, and then send the result back. `together` must divide
/// `size`. Uses fewer messages than recursive doubling alone, which is faster on oversubscribed
/// cores.
Schedule folded_allreduce(int rank, int size, int together);
/// Recursive halving, then doubling (Rabenseifner, 2004; Thakur et al., 2005): as many bytes as a
/// ring in 2 log2(size) phases. Half of them go to the next rank, likely the nearest, a quarter to
/// the second next, and so on. Ranks beyond the largest power of two are handled as in recursive
/// doubling.
Schedule halving_doubling_allreduce(int rank, int size);
/// Reduce to rank 0 along a binomial tree, then broadcast along the same tree.
Schedule tree_allreduce(int rank, int size);
/// All ranks send to rank 0, which reduces all data and sends the result back (a parameter server
/// with one server: Li et al., 2014).
Schedule parameter_server_allreduce(int rank, int size);

// Allgather: chunk r belongs to rank r.
Schedule direct_allgather(int rank, int size);
Schedule ring_allgather(int rank, int size);
/// Recursive doubling (Thakur, Rabenseifner, Gropp, 2005): as many bytes as a ring in log2(size)
/// phases; `size` is a power of two.
Schedule recursive_doubling_allgather(int rank, int size);

/// Rank r gets the reduced chunk r: the first phase of direct_allreduce. Over links it transfers as
/// few bytes as a ring, in one phase.
Schedule direct_reducescatter(int rank, int size);
/// Chunk i * size + j is sent from rank i to rank j.
Schedule direct_alltoall(int rank, int size);

// Broadcast: `root` is a rank of the group.
Schedule direct_broadcast(int rank, int size, int root);
Schedule binomial_broadcast(int rank, int size, int root);
/// Each rank sends what it receives to the next one, from the root on: every byte leaves each rank
/// once. Chunks follow each other, so that all ranks send at the same time.
Schedule chain_broadcast(int rank, int size, int root);

}  // namespace hvd
