// Carries out the FaultPlan of a World, and knows which ranks may be blamed for it.
#pragma once

#include <optional>
#include <vector>

#include "core/sim/faults.h"
#include "core/sim/world.h"

namespace hvd::sim {

class Trouble {
 public:
  /// The arguments must outlive this.
  Trouble(const FaultPlan& plan, World& world) : plan_(plan), world_(world) {}

  const FaultPlan& plan() const { return plan_; }
  /// Planned and has not begun yet.
  bool is_to_come() const { return plan_.fault != Fault::none && !has_begun_; }
  bool has_begun() const { return has_begun_; }
  /// Nothing more goes wrong.
  bool is_over() const { return plan_.fault == Fault::none || is_over_; }
  void begin();
  /// To be called after some steps of the world.
  void passed(int steps);

  bool is_killed(int rank) const;
  /// Neither killed nor stopped.
  bool acts(int rank) const;
  /// Whether `rank` may have lost `culprit`.
  bool may_blame(int rank, int culprit) const;

 private:
  bool concerns(int rank) const;
  void kill_next();
  void divide(bool divided);
  void hold_all_from(int sender, bool held);
  void end();

  const FaultPlan& plan_;
  World& world_;
  bool has_begun_ = false;
  bool is_over_ = false;
  size_t killed_ = 0;  ///< of plan_.ranks
  int until_next_kill_ = 0;
  std::optional<TimePoint> until_{};
};

}  // namespace hvd::sim
