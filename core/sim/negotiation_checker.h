// Judges a simulated run of agreement: which batches met, what became of every operation. Fails by
// throwing Error{internal} with what was seen. Owned by the simulation.
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

  /// The engine of `rank` begins a batch of a set. Returns the ranks whose engines may now finish
  /// theirs.
  std::vector<std::pair<int, Action>> begin(int rank, int set, const Action& batch);
  void finished(uint64_t tag) { ran_.insert(tag); }
  void failed(int rank, const Action& failure);

  /// After a run that nobody has cut short.
  void all_met() const;

 private:
  /// What the ranks of a set bring to their n-th batch.
  struct Meeting {
    std::map<int, Action> there{};
    std::set<int> released{};
  };

  void compare(const Meeting& meeting, int rank, const Action& batch) const;
  void check_somebody_submitted(const Meeting& meeting) const;
  void check_may_run_together(const std::vector<Bound>& operations) const;
  void count(const Meeting& meeting) const;
  void check_mismatch_text(int rank, const Action& failure) const;
  size_t size_of(int set) const;

  const Program& program_;
  Census& census_;
  std::map<std::pair<int, int>, uint64_t> begun_;  ///< by rank, set
  std::map<int, uint64_t> last_sequence_;          ///< by rank
  std::map<std::pair<int, uint64_t>, Meeting> meetings_;
  std::set<uint64_t> ran_;
  std::set<uint64_t> failed_;
};

}  // namespace hvd::sim
