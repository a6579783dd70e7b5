// What each rank sends, receives and merges, phase by phase: pure data. An algorithm is a function
// (rank, size) -> Schedule over chunk numbers; a Layout maps chunks to bytes, so uneven sizes are
// not new algorithms. schedule_test.cc proves each one for all ranks of sizes 1 to 64 by counting
// who holds what.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hvd {

/// Consecutive chunks, without wrapping.
struct ChunkRange {
  int first = 0;
  int count = 0;
  bool operator==(const ChunkRange&) const = default;
};

enum class Merge : uint8_t {
  replace,  ///< the received chunks are the new content
  /// All `reduce` receives of a phase into the same range are combined with this rank's own
  /// content, in ascending order of rank, so that ranks that reduce the same contributions get the
  /// same bits.
  reduce,
};

/// `base`: the chunk at which the sender's room begins in this phase; the room holds the chunks
/// from there to the last one sent. Sender and receiver name the same.
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
  /// reduce: of how many ranks what comes is the reduction.
  int contributions = 1;
  bool operator==(const Receive&) const = default;
};

/// Sends leave with the content the chunks had when the phase began; receives land when all are
/// there.
struct Phase {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  bool operator==(const Phase&) const = default;
};

struct Schedule {
  int chunks = 1;
  std::vector<Phase> phases{};  ///< as many on every rank; a rank may be idle in one
  /// The most chunks that one rank's room holds in any phase, the same on every rank: a unit is
  /// shared by so many.
  int room_chunks = 1;
  bool operator==(const Schedule&) const = default;
};

// Allreduce.
/// Each rank reduces its own chunk from all peers, then everybody takes all chunks: two phases,
/// every byte moved once. The shape for shared memory.
Schedule direct_allreduce(int rank, int size);
/// Each rank takes everything from everybody and reduces it all: one phase, for small payloads,
/// and for two ranks that share memory.
Schedule one_shot_allreduce(int rank, int size);
/// Ring (Patarasuk & Yuan, 2009): every rank sends 2 (size - 1) / size of the buffer.
Schedule ring_allreduce(int rank, int size);
/// Recursive doubling (Thakur, Rabenseifner, Gropp, 2005); ranks beyond the largest power of two
/// fold in before and out after.
Schedule recursive_doubling_allreduce(int rank, int size);
/// Of every `together` ranks in a row the first adds up what they have; the first ones exchange
/// that by recursive doubling, and hand the sums back. `together` divides `size`. Fewer
/// messages than by doubling alone: where ranks share cores, each takes the time of a core.
Schedule folded_allreduce(int rank, int size, int together);
/// Recursive halving, then doubling (Rabenseifner, 2004; Thakur et al., 2005): as many bytes as a
/// ring in 2 log2(size) phases. Half of them go to the next rank, which is likely the nearest, a
/// quarter to the next but one, and so on. Ranks beyond the largest power of two fold as above.
Schedule halving_doubling_allreduce(int rank, int size);
/// Everything up a binomial tree to rank 0, reduced on the way, and down again.
Schedule tree_allreduce(int rank, int size);
/// All send to rank 0, which reduces everything in one go and sends it back (the shape of a
/// parameter server with one server: Li et al., 2014).
Schedule parameter_server_allreduce(int rank, int size);

// Allgather: chunk r belongs to rank r.
Schedule direct_allgather(int rank, int size);
Schedule ring_allgather(int rank, int size);
/// Recursive doubling (Thakur, Rabenseifner, Gropp, 2005): as many bytes as a ring in log2(size)
/// phases; `size` is a power of two.
Schedule recursive_doubling_allgather(int rank, int size);

/// Chunk r ends, reduced, on rank r alone: the first phase of direct_allreduce. Over links it moves
/// as few bytes as a ring and waits once.
Schedule direct_reducescatter(int rank, int size);
/// Chunk i * size + j goes from rank i to rank j.
Schedule direct_alltoall(int rank, int size);

// Broadcast: one chunk, `root` is a rank of the group.
Schedule direct_broadcast(int rank, int size, int root);
Schedule binomial_broadcast(int rank, int size, int root);

}  // namespace hvd
