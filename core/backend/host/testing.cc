#include "core/backend/host/testing.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/backend/mpi/fake_mpi_testing.h"
#include "core/group/eager_buffers.h"
#include "core/kernel/reference.h"
#include "core/transport/mem_link.h"

namespace hvd::test {
namespace {

constexpr uint32_t kGeneration = 1;
constexpr size_t kRingBytes = 4096;
/// Turns of all ranks without progress; more than enough for data in transit to arrive.
constexpr int kQuietTurns = 200;

}  // namespace

std::string name_of(const JobOptions& options) {
  std::string name = options.levels           ? "in levels:"
                     : options.mpi_call_bytes ? "by MPI, ranks:"
                                              : "ranks on hosts:";
  for (const int ranks : options.ranks_per_host) name += fmt::format(" {}", ranks);
  return fmt::format("{}, seed {}", name, options.seed);
}

int ranks_of(const JobOptions& options) { return Topology::of(options.ranks_per_host).ranks(); }

std::vector<JobOptions> flat_jobs() {
  std::vector<JobOptions> jobs;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    jobs.push_back({.ranks_per_host = {ranks}, .seed = 1 + jobs.size()});
    if (ranks > 1)
      jobs.push_back({.ranks_per_host = std::vector<int>(static_cast<size_t>(ranks), 1),
                      .seed = 1 + jobs.size()});
  }
  jobs.push_back({.ranks_per_host = {2, 1}, .seed = 20});
  jobs.push_back({.ranks_per_host = {3, 2}, .seed = 21});
  for (const int ranks : {1, 2, 3, 8}) {
    for (const size_t call_bytes : {size_t{2000}, size_t{1} << 30}) {
      jobs.push_back(
          {.ranks_per_host = {ranks}, .seed = 40 + jobs.size(), .mpi_call_bytes = call_bytes});
    }
  }
  return jobs;
}

std::vector<JobOptions> level_jobs() {
  std::vector<JobOptions> jobs;
  for (const auto& hosts : {std::vector{2, 2}, {3, 3}, {2, 2, 2}, {4, 4}})
    jobs.push_back({.ranks_per_host = hosts, .seed = 30 + jobs.size(), .levels = true});
  return jobs;
}

HostRules level_rules() { return {.allreduce_in_levels = true, .allgather_in_levels = true}; }

Job::Job(const JobOptions& options) : random_(options.seed) {
  const Topology topology = Topology::of(options.ranks_per_host);
  ranks_.resize(static_cast<size_t>(topology.ranks()));
  wire(topology, options);
  std::vector<int> all(ranks_.size());
  std::iota(all.begin(), all.end(), 0);
  for (Rank& rank : ranks_) rank.groups = rank.wiring.make_levels(all, options.levels);
  if (options.mpi_call_bytes > 0) begin_mpi(options.mpi_call_bytes);
}

// The ranks of MPI have other numbers and another order.
void Job::begin_mpi(size_t most_bytes_of_call) {
  const mpi::Table& table = fresh_fake_mpi();
  std::vector<int> all(ranks_.size()), mpi_ranks;
  std::iota(all.begin(), all.end(), 0);
  for (const int rank : all) mpi_ranks.push_back(100 - rank);
  for (const int rank : all) {
    ranks_[rank].carrier = std::make_unique<mpi::MpiCarrier>(table, mpi_ranks, most_bytes_of_call);
    act_as(mpi_ranks[rank]);
    ranks_[rank].carrier->make_communicator(all);
    ranks_[rank].carrier->enter(*ranks_[rank].groups.all, all);
  }
}

void Job::wire(const Topology& topology, const JobOptions& options) {
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    Wiring& wiring = ranks_[rank].wiring;
    wiring.identity.rank = rank;
    wiring.identity.size = topology.ranks();
    wiring.topology = topology;
    wiring.mesh = std::make_unique<Mesh>();
    for (int peer = 0; peer < rank; ++peer) {
      auto [near, far] = MemLink::make_pair({.capacity = 1 + random_() % 20000,
                                             .split_seed = random_() | 1,
                                             .first_rank = rank,
                                             .second_rank = peer});
      wiring.mesh->add(std::make_unique<Channel>(std::move(near), peer, kGeneration));
      ranks_[peer].wiring.mesh->add(std::make_unique<Channel>(std::move(far), rank, kGeneration));
    }
  }
  for (const std::vector<int>& locals : topology.host_ranks) {
    if (locals.size() == 1) continue;
    auto layout =
        SegmentLayout::of(static_cast<int>(locals.size()), options.staging_bytes, kRingBytes);
    layout.eager_bytes = options.eager_bytes;
    layout.eager_ring_bytes = EagerBuffers::least_ring_bytes(options.eager_bytes);
    const auto& memory =
        memories_.emplace_back(std::make_unique<SegmentMemory>(layout.total_bytes()));
    for (size_t i = 0; i < locals.size(); ++i)
      ranks_[locals[i]].wiring.segment =
          std::make_unique<HostSegment>(memory->bytes(), layout, kGeneration, static_cast<int>(i));
  }
}

bool Job::run(const HostRules& rules, std::vector<std::vector<Batch>> batches,
              const std::function<std::unique_ptr<ShortCut>(int rank)>& make_short_cut) {
  std::vector<std::unique_ptr<HostBackend>> backends;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    backends.push_back(std::make_unique<HostBackend>(
        rules, ranks_[i].carrier.get(),
        make_short_cut ? make_short_cut(static_cast<int>(i)) : nullptr));
    ranks_[i].batches = std::move(batches[i]);
    ranks_[i].next = 0;
  }
  const auto finished = [](const Rank& rank) { return rank.next == rank.batches.size(); };
  for (int quiet = 0; !std::ranges::all_of(ranks_, finished);) {
    const size_t next = random_() % ranks_.size();
    quiet = step(*backends[next], ranks_[next]) ? 0 : quiet + 1;
    if (quiet > kQuietTurns * size()) return false;
  }
  return true;
}

bool Job::step(HostBackend& backend, Rank& rank) {
  const bool pumped = rank.wiring.mesh->pump_unsent();  // data that peers wait for
  if (rank.next == rank.batches.size()) return pumped;
  if (!rank.run) rank.run = backend.start(rank.groups, rank.batches[rank.next]);
  const Progress progress = rank.run->advance();
  if (progress == Progress::done) {
    rank.run.reset();
    ++rank.next;
  }
  return pumped || progress != Progress::waiting;
}

Numbers numbers_of(DType dtype, const std::byte* data, size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = kernel::reference::number_at(dtype, data, i);
  return numbers;
}

ByteVector bytes_of(DType dtype, const Numbers& numbers) {
  ByteVector bytes(numbers.size() * element_bytes(dtype));
  for (size_t i = 0; i < numbers.size(); ++i)
    kernel::reference::put_number(dtype, bytes.data(), i, numbers[i]);
  return bytes;
}

Numbers small_numbers(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t kinds = dtype == DType::boolean ? 2 : 4;
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<double>(random() % kinds);
  return numbers;
}

std::vector<DType> all_types() {
  std::vector<DType> types;
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) types.push_back(static_cast<DType>(i));
  return types;
}

}  // namespace hvd::test
