// The loop of all measurements in C++: selects and times the calls, and prints the results. One
// program per peer implements the calls, so peers differ in nothing else. Does not depend on the
// runtime, since the compiler wrapper of each MPI compiles it too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace bench {

enum class Kind { allreduce, allgather, broadcast, alltoall, reducescatter };
enum class Type { float32, float16, bfloat16 };

constexpr size_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

/// One call on one rank. `count`: elements of the larger buffer of the rank, which is the buffer of
/// allreduce and broadcast, both buffers of alltoall, the output of allgather, and the input of
/// reducescatter. `part`: elements of the other buffer of allgather and reducescatter.
struct Call {
  Kind kind = Kind::allreduce;
  Type type = Type::float32;
  std::byte* in = nullptr;   ///< [count]; allgather [part]
  std::byte* out = nullptr;  ///< [count], `in` for allreduce and broadcast; reducescatter [part]
  size_t count = 0;
  size_t part = 0;  ///< count / size
  int root = 0;     ///< of a broadcast; changes from call to call, so that no rank can run ahead
};

/// A library under measurement, seen from one rank. Used by one thread.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Runs a call and blocks until the result is in `out`.
  virtual void run(const Call& call) = 0;
  /// Sets each of `values` to the maximum over all ranks.
  virtual void greatest(std::span<double> values) = 0;
};

struct Options {
  Kind kind = Kind::allreduce;
  Type type = Type::float32;
  std::vector<size_t> sizes;  ///< bytes of the whole
  double seconds = 0.1;       ///< to spend on the timed calls of one size
};

/// Parses `8,1024`.
std::vector<size_t> parse_sizes(const std::string& list);

/// Parses `--kind K --type T --sizes B,B --seconds S`. Ends the process if they are invalid.
Options parse(int argc, char** argv);

/// Measures all sizes. Rank 0 prints a line of JSON per size:
///   {"kind", "type", "np", "bytes", "median_us", "min_us", "count", "correct"}
/// There is no barrier between calls. The time of a call is the time on the slowest rank. The
/// result of the first call of a size is checked. Returns the exit code of the program.
int measure(Peer& peer, const Options& options);

/// Ends the process, because this peer does not support the work. That is a gap in the table.
[[noreturn]] void give_up(const std::string& reason);

/// Binds the process to a core. On oversubscribed cores, consecutive ranks share a core. Otherwise
/// the kernel would decide which ranks share one, and differently in each run.
void pin(int rank, int size);

}  // namespace bench
