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

enum class Algorithm : uint8_t {
  direct,
  one_shot,
  ring,
  recursive_doubling,
  halving_doubling,
  folded,
  tree,
  parameter_server,
  binomial,
};

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::one_shot:
      return "one_shot";
    case Algorithm::ring:
      return "ring";
    case Algorithm::recursive_doubling:
      return "recursive_doubling";
    case Algorithm::halving_doubling:
      return "halving_doubling";
    case Algorithm::folded:
      return "folded";
    case Algorithm::tree:
      return "tree";
    case Algorithm::parameter_server:
      return "parameter_server";
    case Algorithm::binomial:
      return "binomial";
  }
  HVD_ASSERT(false);
}

/// None: it is left to us.
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

/// Whoever reduces a chunk gets it from all ranks at once; the executor goes by ascending rank.
bool reduces_in_one_go(Algorithm algorithm) {
  return algorithm == Algorithm::direct || algorithm == Algorithm::one_shot ||
         algorithm == Algorithm::parameter_server;
}

bool is_overruled(const AllreduceRules& rules) {
  const auto chosen = algorithm_of(rules.choice);
  return rules.deterministic && chosen && !reduces_in_one_go(*chosen);
}

// One synchronisation instead of two, but every rank reads everything: pays while all of it
// together is small.
constexpr size_t kOneShotBytesOfAllRanks = 16 * KiB;
// Two ranks read no more by it than by taking parts, and wait for each other half as often. Each
// line of memory is read and written once, while it is in the cache. Measured at np 2: 16 MiB 1.13
// ms instead of 1.31, 64 MiB 5.6 instead of 6.0 (copying it once on one core: 5.1); 4 MiB, which
// the last cache holds, the same.
constexpr size_t kOneShotBytesOfTwo = 8 * MiB;
// Over links a phase costs a latency: log2(size) phases of everything, 2 log2(size) phases of parts
// of it, or 2 (size - 1) phases of 1 / size. Two ranks send as much in one phase as in two.
// Measured over loopback, recursive doubling, halving and doubling, ring: np 2, 256 KiB: 58, -, 67
// us, 1 MiB: 193, -, 199; np 4, 16 KiB: 76, 73, 238, 256 KiB: 540, 236, 406, 1 MiB: 1700, 770, 950,
// 4 MiB: 13300, 4800, 3000.
constexpr size_t kRecursiveDoublingBytes = 16 * KiB;
constexpr size_t kRecursiveDoublingBytesOfTwo = 1 * MiB;
constexpr size_t kHalvingDoublingBytes = 2 * MiB;
// Within a machine halving and doubling is faster than a ring at any size, where each segment is
// done with before the next, and fewer phases mean fewer turns: np 4, a core for two, 4 MiB 2.2
// instead of 2.3 ms, 64 MiB 35 instead of 38. Allgather, by the bytes of the result; ring and
// recursive doubling over loopback, np 4: 8 B 71, 51 us, 16 KiB 69, 48, 64 KiB 85, 73, 256 KiB 151,
// 152, 4 MiB 1800, 2400.
constexpr size_t kDoublingAllgatherBytes = 128 * KiB;
// Where ranks share cores, what counts is how many messages a core has to do with. Over loopback,
// without the fold and with it: np 4 on two cores, 8 B 26, 21 us, 64 KiB 72, 50, 256 KiB 148, 118,
// 1 MiB 430, 402, 4 MiB alike; np 8 on two, 8 B 146, 62, 256 KiB 465, 307, 1 MiB 1410, 1320; np 32
// on 16, 8 B 178, 87, 64 KiB 396, 218, 256 KiB 757, 752, 1 MiB 2490, 3670. The first rank of a core
// keeps what all the others of it have; more than two first ones send each other everything in
// several phases.
constexpr size_t kFoldedBytesOfACore = 1 * MiB;
constexpr size_t kFoldedBytesAmongMany = 64 * KiB;

// Everybody turns to everybody: pays while those are few.
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
  // Ranks beyond a power of two would fold all their bytes into another before.
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
  // A crowd in shared memory has no room for half of all chunks at once.
  const bool doubles =
      !group.shared_memory && std::has_single_bit(static_cast<unsigned>(group.size));
  return doubles && bytes <= kDoublingAllgatherBytes ? Algorithm::recursive_doubling
                                                     : Algorithm::ring;
}

Algorithm broadcast_algorithm(const GroupFacts& group) {
  return group.shared_memory ? Algorithm::direct : Algorithm::binomial;
}

// Each byte goes where it is needed, once; nothing that passes it on would move less.
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

Schedule choose_broadcast(const GroupFacts& group, int root) {
  return broadcast_algorithm(group) == Algorithm::direct
             ? direct_broadcast(group.rank, group.size, root)
             : binomial_broadcast(group.rank, group.size, root);
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
      "this algorithm depend on the size; choose direct or parameter_server, or leave it out",
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
       {"links, two a core", {.on_one_machine = true, .ranks_a_core = 2}},
       {"links", {}}}};
  for (auto [transport, group] : kGroups)
    for (const int size : kSizes)
      for (const size_t bytes : kBytes) {
        group.size = size;
        table += fmt::format(
            kRow, transport, size, bytes, name_of(allreduce_algorithm(group, bytes, {})),
            name_of(allreduce_algorithm(group, bytes, {.deterministic = true})),
            name_of(allgather_algorithm(group, bytes)), name_of(broadcast_algorithm(group)),
            name_of(kReducescatterAlgorithm), name_of(kAlltoallAlgorithm));
      }
  return table;
}

}  // namespace hvd
