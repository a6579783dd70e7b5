// Checks a simulated job that has come to its end: how it ended on every rank, every result, every
// completion, and the counters.
#pragma once

#include <cstdint>
#include <string>

#include "core/sim/trouble.h"
#include "core/sim/world_job.h"

namespace hvd::sim {

class WorldChecker {
 public:
  /// The arguments must outlive this.
  WorldChecker(const WorldProgram& program, const WorldJob& job, const World& world,
               const Trouble& trouble);

  /// Returns the first failure; "" if there is none.
  std::string check();
  /// Of all outcomes.
  uint64_t digest() const { return digest_; }

 private:
  void check_ending(int rank);
  void check_item(int rank, size_t i);
  void check_once(int rank, size_t i);
  bool expect_outcome(int rank, const Completion& completion, Code code, const std::string& what);
  bool is_excused(int rank, const Outcome& outcome) const;
  void check_number(int rank, size_t i);
  void compare(int rank, size_t i);
  const std::byte* result_of(int rank, size_t i, size_t output) const;
  void check_joins(int rank);
  void check_counters(int rank);
  void expect_counted(int rank, size_t i, CounterValues& expected) const;
  void note(int rank, const std::string& what);

  const WorldProgram& program_;
  const WorldJob& job_;
  const World& world_;
  const Trouble& trouble_;
  bool lost_ = false;  ///< ranks were lost, and every rank knows it
  uint64_t digest_ = 1;
  std::string failure_;
};

}  // namespace hvd::sim
