// What the tests of the host backend need: all ranks of a job in one thread, over real staging
// within a host and links between hosts, and the tensors of a batch on all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/backend/host/eager_task.h"
#include "core/backend/host/host_backend.h"
#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/bytes.h"
#include "core/group/bootstrap/wiring.h"
#include "core/group/segment_memory.h"

namespace hvd::testing {

struct JobOptions {
  std::vector<int> ranks_per_host = {2};
  uint64_t seed = 1;
  /// Small, so that a few hundred elements are several segments.
  size_t staging_bytes = 16 * KiB;
  bool levels = false;
  /// Not 0: the bytes go by a fake MPI that takes so many in a call.
  size_t mpi_call_bytes = 0;
};

std::string name_of(const JobOptions& options);
int ranks_of(const JobOptions& options);
/// 1 to 8 ranks on one host, each on a host of its own, and mixed; and some by MPI.
std::vector<JobOptions> flat_jobs();
/// Jobs with levels, and the rules that use them.
std::vector<JobOptions> level_jobs();
HostRules level_rules();

/// Owns the wirings of all ranks and a group of all of them.
class Job {
 public:
  explicit Job(const JobOptions& options);

  int size() const { return static_cast<int>(ranks_.size()); }
  GroupLevels& groups(int rank) { return ranks_[rank].groups; }
  /// Where the job goes by MPI.
  mpi::MpiCarrier& carrier(int rank) { return *ranks_[rank].carrier; }

  /// Runs a row of batches, `batches[rank][i]`, to the end: a step of one rank at a time, in an
  /// order drawn from the seed. False when nobody can go on.
  [[nodiscard]] bool run(const HostRules& rules, std::vector<std::vector<Batch>> batches);

 private:
  struct Rank {
    Wiring wiring;
    GroupLevels groups;
    std::unique_ptr<mpi::MpiCarrier> carrier;
    std::vector<Batch> batches;
    size_t next = 0;
    std::unique_ptr<Run> run;
  };
  void wire(const Topology& topology, const JobOptions& options);
  void begin_mpi(size_t most_bytes_of_call);
  bool step(HostBackend& backend, Rank& rank);

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<SegmentMemory>> memories_;
  std::vector<Rank> ranks_;
};

/// A call of one rank that is under way: to be advanced, and given up when it goes.
using UnderWay = std::function<Run::Progress()>;
/// All ranks make so many calls in a row; each begins the next one when it is done with one, so
/// that ranks may be in different calls. A step of one at a time, in an order drawn from `random`.
/// `ended` is told of each call once it is gone. False when nobody can go on.
[[nodiscard]] bool take_turns(std::mt19937_64& random, size_t ranks, size_t calls,
                              const std::function<UnderWay(size_t rank, size_t call)>& begin,
                              const std::function<void(size_t rank, size_t call)>& ended = {});
using BeginCall = std::function<UnderWay(Group&, const EagerTask&)>;
/// Of two ranks over links, the first gives up after so many steps of a call (an allreduce, an
/// allgather or a broadcast from the second): its peer gets what it was to get, and the memory of
/// whoever gave up is not touched again.
void expect_an_orderly_end(const BeginCall& begin, Transfer transfer, int steps);

/// Elements of any type as plain numbers.
using Numbers = std::vector<double>;
Numbers numbers_of(DType dtype, const std::byte* data, size_t count);
ByteVector bytes_of(DType dtype, const Numbers& numbers);

/// Small whole numbers, which every type can hold and whose sums it can, too.
Numbers small_numbers(DType dtype, size_t count, uint64_t seed);

/// Every element type.
std::vector<DType> all_types();

}  // namespace hvd::testing
