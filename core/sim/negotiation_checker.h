// Checks a simulated negotiation: the batches and the result of every operation. Throws
// Error{internal} with the observed behaviour on a failure. Owned by the simulation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/negotiate/client.h"
#include "core/sim/census.h"
#include "core/sim/negotiation_program.h"

namespace hvd::sim {

class NegotiationChecker {
 public:
  NegotiationChecker(const Program& program, Census& census) : program_(program), census_(census) {}

  /// The engine of `rank` starts a batch of a set. Returns the ranks whose engines may now finish
  /// the batch.
  std::vector<std::pair<int, Action>> begin(int rank, int set, const Action& batch);
  void finished(uint64_t tag) { ran_.insert(tag); }
  void failed(int rank, const Action& failure);

  /// Call it after a run that has not been cut short.
  void all_met() const;

 private:
  /// Where batches are numbered: a set and, for messages, their two ranks.
  using Place = std::pair<int, std::vector<int32_t>>;
  /// The n-th batch of a place on its ranks.
  struct SharedBatch {
    std::map<int, Action> there{};
    std::set<int> released{};
  };

  void compare(const SharedBatch& shared, int rank, const Action& batch) const;
  void check_somebody_submitted(const SharedBatch& shared) const;
  void check_may_run_together(const std::vector<Bound>& operations) const;
  void count(const SharedBatch& shared) const;
  void check_mismatch_text(int rank, const Action& failure) const;
  static Place place_of(int set, const Action& batch);
  size_t size_of(const Place& place) const;

  const Program& program_;
  Census& census_;
  std::map<std::pair<int, Place>, uint64_t> begun_;  ///< by rank, place
  std::map<int, uint64_t> last_sequence_;            ///< by rank
  std::map<std::pair<Place, uint64_t>, SharedBatch> batches_;
  std::set<uint64_t> ran_;
  std::set<uint64_t> failed_;
};

}  // namespace hvd::sim
