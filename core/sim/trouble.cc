#include "core/sim/trouble.h"

#include <algorithm>

namespace hvd::sim {

void Trouble::begin() {
  has_begun_ = true;
  until_next_kill_ = plan_.between;
  switch (plan_.fault) {
    case Fault::none:
      return;
    case Fault::kill:
    case Fault::two_kills:
      return kill_next();
    case Fault::clock_jump:
      world_.suspend(plan_.lasts);
      is_over_ = true;
      return;
    case Fault::pause:
      world_.stop(plan_.ranks.front());
      break;
    case Fault::delay:
      hold_all_from(plan_.ranks.front(), true);
      break;
    case Fault::partition:
      divide(true);
      break;
  }
  until_ = world_.now() + plan_.lasts;
  world_.set_alarm(until_);
}

void Trouble::passed(int steps) {
  if (!has_begun_ || is_over_) return;
  if (!plan_.kills()) {
    if (world_.now() >= *until_) end();
  } else if ((until_next_kill_ -= steps) <= 0) {
    kill_next();
  }
}

void Trouble::end() {
  is_over_ = true;
  world_.set_alarm(std::nullopt);
  if (plan_.fault == Fault::pause) world_.resume(plan_.ranks.front());
  if (plan_.fault == Fault::delay) hold_all_from(plan_.ranks.front(), false);
  if (plan_.fault == Fault::partition) divide(false);
}

void Trouble::kill_next() {
  world_.lose(plan_.ranks[killed_++]);
  is_over_ = killed_ == plan_.ranks.size();
}

void Trouble::divide(bool divided) {
  for (int a = 0; a < world_.size(); ++a) {
    for (int b = 0; b < world_.size(); ++b) {
      if (concerns(a) != concerns(b)) world_.hold(a, b, divided);
    }
  }
}

void Trouble::hold_all_from(int sender, bool held) {
  for (int to = 0; to < world_.size(); ++to) world_.hold(sender, to, held);
}

bool Trouble::concerns(int rank) const {
  return std::ranges::find(plan_.ranks, rank) != plan_.ranks.end();
}

bool Trouble::is_killed(int rank) const {
  const auto end = plan_.ranks.begin() + static_cast<std::ptrdiff_t>(killed_);
  return std::find(plan_.ranks.begin(), end, rank) != end;
}

bool Trouble::acts(int rank) const {
  const bool is_stopped = plan_.fault == Fault::pause && has_begun_ && !is_over_ && concerns(rank);
  return !is_killed(rank) && !is_stopped;
}

// After a partition, each side has lost ranks of the other one. A side that had nothing to do
// learns later from the other one which of its ranks was given up.
bool Trouble::may_blame(int rank, int culprit) const {
  if (!has_begun_ || !plan_.may_cost_ranks()) return false;
  if (plan_.kills()) return is_killed(culprit);
  if (plan_.fault == Fault::pause) return concerns(culprit);
  return concerns(culprit) != concerns(rank) || is_over_;
}

}  // namespace hvd::sim
