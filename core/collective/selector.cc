#include "core/collective/selector.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/assert.h"
#include "core/base/bytes.h"

namespace hvd {
namespace {

/// Returns nullopt for automatic selection.
std::optional<Algorithm> algorithm_of(AlgorithmChoice choice) {
  switch (choice) {
    case AlgorithmChoice::automatic:
      return std::nullopt;
    case AlgorithmChoice::direct:
      return Algorithm::direct;
    case AlgorithmChoice::ring:
      return Algorithm::ring;
    case AlgorithmChoice::recursive_doubling:
      return Algorithm::recursive_doubling;
    case AlgorithmChoice::halving_doubling:
      return Algorithm::halving_doubling;
    case AlgorithmChoice::tree:
      return Algorithm::tree;
    case AlgorithmChoice::parameter_server:
      return Algorithm::parameter_server;
  }
  HVD_ASSERT(false);
}

/// Returns whether each chunk is reduced from all ranks at once; the executor then uses ascending
/// rank order.
bool reduces_in_one_go(Algorithm algorithm) {
  return algorithm == Algorithm::direct || algorithm == Algorithm::one_shot ||
         algorithm == Algorithm::parameter_server;
}

bool is_overruled(const AllreduceRules& rules) {
  const auto chosen = algorithm_of(rules.choice);
  return rules.deterministic && chosen && !reduces_in_one_go(*chosen);
}

// One synchronization instead of two, but every rank reads all data: faster while the total is
// small.
constexpr size_t kOneShotBytesOfAllRanks = 16 * KiB;
// Two ranks read no more data than with direct, and synchronize half as often. Each line of memory
// is read and written once, while it is cached. Tuned by measurement, see docs/decisions/0025.
constexpr size_t kOneShotBytesOfTwo = 8 * MiB;
// Over links each phase costs a latency: log2(size) phases with all data, 2 log2(size) phases with
// parts of it, or 2 (size - 1) phases with 1 / size of it. Two ranks send as much in one phase as
// in two. Tuned by measurement over loopback, see docs/decisions/0013.
constexpr size_t kRecursiveDoublingBytes = 16 * KiB;
constexpr size_t kRecursiveDoublingBytesOfTwo = 1 * MiB;
constexpr size_t kHalvingDoublingBytes = 2 * MiB;
// Within a machine halving and doubling is faster than a ring at any size, because each segment is
// finished before the next and fewer phases mean fewer context switches. The limit of recursive
// doubling for allgather applies to the size of the result. Tuned by measurement, see
// docs/decisions/0013.
constexpr size_t kDoublingAllgatherBytes = 128 * KiB;
// On oversubscribed cores the number of messages per core determines the time. With pre-reduction,
// the first rank of a core keeps the data of all its ranks; more than two leaders exchange all data
// in several phases. Tuned by measurement over loopback, see docs/decisions/0013.
constexpr size_t kFoldedBytesOfACore = 1 * MiB;
constexpr size_t kFoldedBytesAmongMany = 64 * KiB;

// From here on a chain takes no longer than a tree, see docs/decisions/0089.
constexpr size_t kChainBytesOfARank = 512 * KiB;

// All ranks access all ranks: faster while there are few.
constexpr int kMostRanksReadDirectly = 1024;

bool reads_all_directly(const GroupFacts& group) {
  return group.shared_memory && group.size <= kMostRanksReadDirectly;
}

bool pays_in_one_shot(const GroupFacts& group, size_t bytes) {
  return bytes * static_cast<size_t>(group.size) <= kOneShotBytesOfAllRanks ||
         (group.shared_memory && group.size == 2 && bytes >= kOneShotBytesOfTwo);
}

bool pays_to_fold(const GroupFacts& group, size_t bytes) {
  const int cores = group.size / group.ranks_a_core, others = group.ranks_a_core - 1;
  if (others == 0 || group.size == 2) return false;
  return bytes * static_cast<size_t>(others) <= kFoldedBytesOfACore &&
         (cores <= 2 || bytes <= kFoldedBytesAmongMany);
}

Algorithm allreduce_over_links(const GroupFacts& group, size_t bytes) {
  if (pays_to_fold(group, bytes)) return Algorithm::folded;
  if (bytes <= (group.size == 2 ? kRecursiveDoublingBytesOfTwo : kRecursiveDoublingBytes))
    return Algorithm::recursive_doubling;
  // Ranks beyond a power of two would send all their data to another rank first.
  const bool halves = std::has_single_bit(static_cast<unsigned>(group.size)) &&
                      (group.on_one_machine || bytes <= kHalvingDoublingBytes);
  return halves ? Algorithm::halving_doubling : Algorithm::ring;
}

Algorithm allreduce_algorithm(const GroupFacts& group, size_t bytes, const AllreduceRules& rules) {
  const auto chosen = algorithm_of(rules.choice);
  if (chosen && !is_overruled(rules)) return *chosen;
  if (reads_all_directly(group) || rules.deterministic)
    return pays_in_one_shot(group, bytes) ? Algorithm::one_shot : Algorithm::direct;
  return allreduce_over_links(group, bytes);
}

Algorithm allgather_algorithm(const GroupFacts& group, size_t bytes) {
  if (reads_all_directly(group)) return Algorithm::direct;
  // With many ranks in shared memory, half of all chunks do not fit into a unit.
  const bool doubles =
      !group.shared_memory && std::has_single_bit(static_cast<unsigned>(group.size));
  return doubles && bytes <= kDoublingAllgatherBytes ? Algorithm::recursive_doubling
                                                     : Algorithm::ring;
}

// The root of a binomial tree sends log2(size) copies over its link, that of a chain only one, but
// the last rank of a chain waits for all others. Ranks of one machine share no link.
Algorithm broadcast_algorithm(const GroupFacts& group, size_t bytes) {
  if (group.shared_memory) return Algorithm::direct;
  const bool is_long = bytes >= kChainBytesOfARank * static_cast<size_t>(group.size);
  return is_long && group.size > 2 && !group.on_one_machine ? Algorithm::ring : Algorithm::binomial;
}

// Each byte is sent directly to its destination; forwarding would not reduce the traffic.
constexpr Algorithm kReducescatterAlgorithm = Algorithm::direct;
constexpr Algorithm kAlltoallAlgorithm = Algorithm::direct;

}  // namespace

Schedule choose_allreduce(const GroupFacts& group, size_t bytes, const AllreduceRules& rules) {
  switch (allreduce_algorithm(group, bytes, rules)) {
    case Algorithm::direct:
      return direct_allreduce(group.rank, group.size);
    case Algorithm::one_shot:
      return one_shot_allreduce(group.rank, group.size);
    case Algorithm::ring:
      return ring_allreduce(group.rank, group.size);
    case Algorithm::recursive_doubling:
      return recursive_doubling_allreduce(group.rank, group.size);
    case Algorithm::halving_doubling:
      return halving_doubling_allreduce(group.rank, group.size);
    case Algorithm::folded:
      return folded_allreduce(group.rank, group.size, group.ranks_a_core);
    case Algorithm::tree:
      return tree_allreduce(group.rank, group.size);
    case Algorithm::parameter_server:
      return parameter_server_allreduce(group.rank, group.size);
    case Algorithm::none:
    case Algorithm::binomial:
      break;
  }
  HVD_ASSERT(false);
}

Schedule choose_allgather(const GroupFacts& group, size_t bytes) {
  const Algorithm algorithm = allgather_algorithm(group, bytes);
  if (algorithm == Algorithm::direct) return direct_allgather(group.rank, group.size);
  if (algorithm == Algorithm::ring) return ring_allgather(group.rank, group.size);
  HVD_ASSERT(algorithm == Algorithm::recursive_doubling);
  return recursive_doubling_allgather(group.rank, group.size);
}

Schedule choose_broadcast(const GroupFacts& group, size_t bytes, int root) {
  const Algorithm algorithm = broadcast_algorithm(group, bytes);
  if (algorithm == Algorithm::direct) return direct_broadcast(group.rank, group.size, root);
  if (algorithm == Algorithm::ring) return chain_broadcast(group.rank, group.size, root);
  return binomial_broadcast(group.rank, group.size, root);
}

Schedule choose_reducescatter(const GroupFacts& group) {
  return direct_reducescatter(group.rank, group.size);
}

Schedule choose_alltoall(const GroupFacts& group) {
  return direct_alltoall(group.rank, group.size);
}

std::string warning_of_choice(const AllreduceRules& rules) {
  if (!is_overruled(rules)) return {};
  return fmt::format(
      "HOROVOD_ALLREDUCE_ALGORITHM={} has no effect: HOROVOD_DETERMINISTIC is set, and the sums of "
      "this algorithm depend on the size; use direct or parameter_server, or unset it",
      name_of(*algorithm_of(rules.choice)));
}

std::string describe_choices() {
  constexpr std::array kSizes = {2, 4, 8, 64};
  constexpr std::array kBytes = {size_t{4}, 1 * KiB, 4 * KiB, 16 * KiB,
                                 64 * KiB,  1 * MiB, 64 * MiB};
  constexpr fmt::string_view kRow = "{:18} {:>5} {:>9}  {:18} {:13} {:18} {:9} {:13} {}\n";
  std::string table = fmt::format(kRow, "transport", "ranks", "bytes", "allreduce", "deterministic",
                                  "allgather", "broadcast", "reducescatter", "alltoall");
  constexpr std::array<std::pair<std::string_view, GroupFacts>, 4> kGroups{
      {{"shared memory", {.shared_memory = true, .on_one_machine = true}},
       {"links, one machine", {.on_one_machine = true}},
       {"links, two per core", {.on_one_machine = true, .ranks_a_core = 2}},
       {"links", {}}}};
  for (auto [transport, group] : kGroups)
    for (const int size : kSizes)
      for (const size_t bytes : kBytes) {
        group.size = size;
        table += fmt::format(
            kRow, transport, size, bytes, name_of(allreduce_algorithm(group, bytes, {})),
            name_of(allreduce_algorithm(group, bytes, {.deterministic = true})),
            name_of(allgather_algorithm(group, bytes)), name_of(broadcast_algorithm(group, bytes)),
            name_of(kReducescatterAlgorithm), name_of(kAlltoallAlgorithm));
      }
  return table;
}

}  // namespace hvd
