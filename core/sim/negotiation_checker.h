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
#include "core/sim/negotiation_program.h"

namespace hvd::sim {

struct Totals {
  uint64_t operations = 0;
  uint64_t batches = 0;
  uint64_t fused = 0;  ///< operations that ran together with others
  uint64_t faults = 0;
  uint64_t joins = 0;
  uint64_t deaths = 0;
  uint64_t shutdowns = 0;
  uint64_t stalls = 0;
  uint64_t silent = 0;
  uint64_t sets = 0;
  uint64_t duplicates = 0;
  uint64_t orphans = 0;  ///< failed with their process set
  uint64_t retirements = 0;
  uint64_t kept_slots = 0;  ///< most at one hub
};

class NegotiationChecker {
 public:
  NegotiationChecker(const Program& program, Totals& totals) : program_(program), totals_(totals) {}

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
  void check_mismatch_text(int rank, const Action& failure) const;
  size_t size_of(int set) const;

  const Program& program_;
  Totals& totals_;
  std::map<std::pair<int, int>, uint64_t> begun_;  ///< by rank, set
  std::map<int, uint64_t> last_sequence_;          ///< by rank
  std::map<std::pair<int, uint64_t>, Meeting> meetings_;
  std::set<uint64_t> ran_;
  std::set<uint64_t> failed_;
};

}  // namespace hvd::sim
