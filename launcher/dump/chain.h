// Follows operations that wait for ranks which themselves wait in other operations, as of several
// process sets, to the rank that all of them wait for. Pure.
#pragma once

#include <vector>

#include "launcher/dump/explain.h"

namespace hvd::launcher {

/// Moves the operation at which the chain from the first one ends to the front: a rank that it
/// misses waits for none itself. If the chain ends in a cycle, that is an operation of the cycle.
void put_end_of_chain_first(std::vector<Waited>& operations);

/// Ranks that wait in an operation for others that wait in the next one.
struct Link {
  const Waited* operation = nullptr;
  std::vector<int> waiting{};  ///< missing in the operation of the link before
  std::vector<int> missing{};  ///< waiting in the operation of the next link
};
/// The cycle that begins with the first operation; none if two operations form it, of which each
/// waits for the ranks of the other.
std::vector<Link> cycle_in(const std::vector<Waited>& operations);

}  // namespace hvd::launcher
