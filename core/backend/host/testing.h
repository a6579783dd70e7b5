// Helpers for tests of the host backend: all ranks of a job in one thread, with real staging within
// a host and links between hosts, and the tensors of a batch on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/bytes.h"
#include "core/bootstrap/wiring.h"
#include "core/group/segment_memory.h"

namespace hvd::test {

struct JobOptions {
  std::vector<int> ranks_per_host = {2};
  uint64_t seed = 1;
  /// Small, so that a few hundred elements are several segments.
  size_t staging_bytes = 16 * KiB;
  bool levels = false;
  /// Bytes of a message in the eager buffers of each host; 0: no eager buffers.
  size_t eager_bytes = 0;
  /// Not 0: a fake MPI moves the data and supports this many bytes per call.
  size_t mpi_call_bytes = 0;
};

std::string name_of(const JobOptions& options);
int ranks_of(const JobOptions& options);
/// Jobs of 1 to 8 ranks: on one host, on separate hosts, and mixed; some use MPI.
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
  /// Sends what a rank has not sent yet. For callers that advance runs themselves.
  void pump(int rank) { ranks_[rank].wiring.mesh->pump_unsent(); }
  /// Only if the job uses MPI.
  mpi::MpiCarrier& carrier(int rank) { return *ranks_[rank].carrier; }

  /// Runs consecutive batches `batches[rank][i]` to the end. Ranks advance one step at a time in an
  /// order drawn from the seed. Returns false if no rank can make progress. `make_short_cut`, if
  /// any, is called once per rank.
  [[nodiscard]] bool run(
      const HostRules& rules, std::vector<std::vector<Batch>> batches,
      const std::function<std::unique_ptr<ShortCut>(int rank)>& make_short_cut = {});

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

/// Elements of any type as plain numbers.
using Numbers = std::vector<double>;
Numbers numbers_of(DType dtype, const std::byte* data, size_t count);
ByteVector bytes_of(DType dtype, const Numbers& numbers);

/// Small integers that every type can represent, as well as their sums.
Numbers small_numbers(DType dtype, size_t count, uint64_t seed);

/// Every element type.
std::vector<DType> all_types();

}  // namespace hvd::test
