#include "launcher/dump/chain.h"

#include <algorithm>
#include <map>

namespace hvd::launcher {
namespace {

constexpr size_t kShortestCycle = 3;

/// The operations, by their places, that wait for ranks.
class Chains {
 public:
  explicit Chains(const std::vector<Waited>& operations) : operations_(operations) {
    for (size_t place = 0; place < operations.size(); ++place) {
      const Waited& one = operations[place];
      if (one.missing.empty() || one.age < kHangAge) continue;
      for (const int rank : one.submitted) waits_in_[rank].push_back(place);
    }
  }

  /// Those in which ranks wait that this one misses, ascending.
  std::vector<size_t> after(size_t place) const {
    std::vector<size_t> next;
    for (const int rank : operations_[place].missing)
      if (const auto found = waits_in_.find(rank); found != waits_in_.end())
        next.insert(next.end(), found->second.begin(), found->second.end());
    std::ranges::sort(next);
    const auto repeated = std::ranges::unique(next);
    next.erase(repeated.begin(), repeated.end());
    return next;
  }

  /// How many ranks that it misses wait for nothing.
  size_t idle(size_t place) const {
    const std::vector<int>& missing = operations_[place].missing;
    return static_cast<size_t>(
        std::ranges::count_if(missing, [&](int rank) { return !waits_in_.contains(rank); }));
  }

  /// From the first operation on, ascending.
  std::vector<size_t> reached() const {
    std::vector<size_t> found{0};
    std::vector<bool> is_known(operations_.size());
    is_known[0] = true;
    for (size_t i = 0; i < found.size(); ++i)
      for (const size_t next : after(found[i]))
        if (!is_known[next]) {
          is_known[next] = true;
          found.push_back(next);
        }
    std::ranges::sort(found);
    return found;
  }

  /// Every operation that can be reached has one after it.
  std::vector<size_t> cycle() const {
    std::vector<size_t> path{0};
    while (true) {
      const size_t next = after(path.back()).front();
      const auto begin = std::ranges::find(path, next);
      if (begin != path.end()) return {begin, path.end()};
      path.push_back(next);
    }
  }

 private:
  const std::vector<Waited>& operations_;
  std::map<int, std::vector<size_t>> waits_in_{};  ///< by rank
};

/// Operations that wait for idle ranks only are clearer than those that also wait for others.
size_t end_of_chain(const std::vector<Waited>& operations) {
  const Chains chains(operations);
  const std::vector<size_t> reached = chains.reached();
  for (const size_t place : reached)
    if (chains.idle(place) == operations[place].missing.size()) return place;
  for (const size_t place : reached)
    if (chains.idle(place) > 0) return place;
  return std::ranges::min(chains.cycle());
}

std::vector<int> common(const std::vector<int>& one, const std::vector<int>& other) {
  std::vector<int> ranks;
  for (const int rank : one)
    if (std::ranges::find(other, rank) != other.end()) ranks.push_back(rank);
  return ranks;
}

}  // namespace

void put_end_of_chain_first(std::vector<Waited>& operations) {
  if (operations.empty()) return;
  const auto end = operations.begin() + static_cast<std::ptrdiff_t>(end_of_chain(operations));
  std::rotate(operations.begin(), end, end + 1);
}

std::vector<Link> cycle_in(const std::vector<Waited>& operations) {
  if (operations.empty()) return {};
  const Chains chains(operations);
  for (const size_t place : chains.reached())
    if (chains.idle(place) > 0 || operations[place].missing.empty()) return {};
  std::vector<size_t> cycle = chains.cycle();
  std::ranges::rotate(cycle, std::ranges::min_element(cycle));
  if (cycle.size() < kShortestCycle || cycle.front() != 0) return {};
  std::vector<Link> links;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Waited& before = operations[cycle[(i + cycle.size() - 1) % cycle.size()]];
    const Waited& one = operations[cycle[i]];
    const Waited& next = operations[cycle[(i + 1) % cycle.size()]];
    links.push_back(
        {&one, common(one.submitted, before.missing), common(one.missing, next.submitted)});
  }
  return links;
}

}  // namespace hvd::launcher
