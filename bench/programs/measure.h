// The one loop of every measurement in C++: which calls are made, when they are timed, and what is
// printed. A program a peer says only how that peer makes a call, so that peers differ in nothing
// else. Needs no part of the runtime: it is compiled by the compiler wrapper of each MPI as well.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace bench {

enum class Kind { allreduce, allgather, broadcast, alltoall, reducescatter };
enum class Type { float32, float16, bfloat16 };

constexpr size_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

/// One call on one rank. `count` elements are the whole of it: what allreduce and broadcast work on
/// in place, what alltoall sends and receives, what allgather ends with and reducescatter begins
/// with. A `part` is what one rank holds on the other side of the latter two.
struct Call {
  Kind kind = Kind::allreduce;
  Type type = Type::float32;
  std::byte* in = nullptr;   ///< [count]; allgather [part]
  std::byte* out = nullptr;  ///< [count], `in` for allreduce and broadcast; reducescatter [part]
  size_t count = 0;
  size_t part = 0;  ///< count / size
  int root = 0;     ///< of a broadcast: the ranks take turns, so that none of them can run ahead
};

/// A library under measurement, seen from one rank. Used by one thread.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns when the result is in `out`.
  virtual void run(const Call& call) = 0;
  /// Each of `values` becomes the greatest of all ranks.
  virtual void greatest(std::span<double> values) = 0;
};

struct Options {
  Kind kind = Kind::allreduce;
  Type type = Type::float32;
  std::vector<size_t> sizes;  ///< bytes of the whole
  double seconds = 0.1;       ///< to spend on the timed calls of one size
};

/// From `8,1024`.
std::vector<size_t> parse_sizes(const std::string& list);

/// From `--kind K --type T --sizes B,B --seconds S`; ends the process when they make no sense.
Options parse(int argc, char** argv);

/// Measures every size; rank 0 prints a line of JSON for each:
///   {"kind", "type", "np", "bytes", "median_us", "min_us", "count", "correct"}
/// Calls follow each other without a barrier. The time of a call is that of the slowest rank. The
/// first call of a size is compared with the right result. Returns the exit code of the program.
int measure(Peer& peer, const Options& options);

/// Ends the process: this peer cannot do what was asked for, which is a gap in the table.
[[noreturn]] void give_up(const std::string& reason);

/// Binds the process to a core of its own where there is one for every rank, as good launchers do.
/// Where there is not, ranks that follow each other share one, as those of a host share a host: who
/// shares one with whom would else be left to the kernel, and change from run to run.
void pin(int rank, int size);

}  // namespace bench
