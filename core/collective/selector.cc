#include "core/collective/selector.h"

#include <fmt/core.h>

#include <array>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

enum class Algorithm : uint8_t { direct, one_shot, ring, recursive_doubling, binomial };

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
    case Algorithm::binomial:
      return "binomial";
  }
  HVD_ASSERT(false);
}

// One synchronisation instead of two, but every rank reads everything: pays while all of it
// together is small.
constexpr size_t kOneShotBytesOfAllRanks = 16 * KiB;
// Over links a phase costs a latency: log2(size) phases of everything, or 2 (size - 1) phases of 1
// / size.
constexpr size_t kRecursiveDoublingBytes = 64 * KiB;

// More ranks on one host than a single reduction takes: as over links.
bool reads_all_directly(const GroupFacts& group) {
  return group.shared_memory && static_cast<size_t>(group.size) <= kernel::kMaxSources;
}

Algorithm allreduce_algorithm(const GroupFacts& group, size_t bytes, AlgorithmChoice choice) {
  switch (choice) {
    case AlgorithmChoice::direct:
      return Algorithm::direct;
    case AlgorithmChoice::ring:
      return Algorithm::ring;
    case AlgorithmChoice::recursive_doubling:
      return Algorithm::recursive_doubling;
    case AlgorithmChoice::halving_doubling:
    case AlgorithmChoice::tree:
    case AlgorithmChoice::parameter_server:
    case AlgorithmChoice::automatic:
      break;
  }
  if (reads_all_directly(group))
    return bytes * static_cast<size_t>(group.size) <= kOneShotBytesOfAllRanks ? Algorithm::one_shot
                                                                              : Algorithm::direct;
  return bytes <= kRecursiveDoublingBytes ? Algorithm::recursive_doubling : Algorithm::ring;
}

Algorithm allgather_algorithm(const GroupFacts& group) {
  return reads_all_directly(group) ? Algorithm::direct : Algorithm::ring;
}

Algorithm broadcast_algorithm(const GroupFacts& group) {
  return group.shared_memory ? Algorithm::direct : Algorithm::binomial;
}

}  // namespace

Schedule choose_allreduce(const GroupFacts& group, size_t bytes, AlgorithmChoice choice) {
  switch (allreduce_algorithm(group, bytes, choice)) {
    case Algorithm::direct:
      return direct_allreduce(group.rank, group.size);
    case Algorithm::one_shot:
      return one_shot_allreduce(group.rank, group.size);
    case Algorithm::ring:
      return ring_allreduce(group.rank, group.size);
    case Algorithm::recursive_doubling:
      return recursive_doubling_allreduce(group.rank, group.size);
    case Algorithm::binomial:
      break;
  }
  HVD_ASSERT(false);
}

Schedule choose_allgather(const GroupFacts& group, size_t /*bytes*/) {
  return allgather_algorithm(group) == Algorithm::direct ? direct_allgather(group.rank, group.size)
                                                         : ring_allgather(group.rank, group.size);
}

Schedule choose_broadcast(const GroupFacts& group, size_t /*bytes*/, int root) {
  return broadcast_algorithm(group) == Algorithm::direct
             ? direct_broadcast(group.rank, group.size, root)
             : binomial_broadcast(group.rank, group.size, root);
}

std::string describe_choices() {
  constexpr std::array kSizes = {2, 4, 8, 64};
  constexpr std::array kBytes = {size_t{4}, 1 * KiB, 4 * KiB, 16 * KiB,
                                 64 * KiB,  1 * MiB, 64 * MiB};
  std::string table = fmt::format("{:14} {:>5} {:>9}  {:18} {:9} {}\n", "transport", "ranks",
                                  "bytes", "allreduce", "allgather", "broadcast");
  for (const bool shared : {true, false})
    for (const int size : kSizes)
      for (const size_t bytes : kBytes) {
        const GroupFacts group{.size = size, .shared_memory = shared};
        table += fmt::format(
            "{:14} {:>5} {:>9}  {:18} {:9} {}\n", shared ? "shared memory" : "links", size, bytes,
            name_of(allreduce_algorithm(group, bytes, AlgorithmChoice::automatic)),
            name_of(allgather_algorithm(group)), name_of(broadcast_algorithm(group)));
      }
  return table;
}

}  // namespace hvd
