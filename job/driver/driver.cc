#include "job/driver/driver.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace hvd::job {
namespace {

/// Blame is known before exits are judged; a death by signal comes before an exit by choice, since
/// the one is often the reason of the other and both may be seen at once.
int weight(const Event& event) {
  if (std::holds_alternative<RankEnds>(event)) return 0;
  if (const auto* exited = std::get_if<RankExited>(&event))
    return exited->status.signal != 0 ? 1 : 2;
  if (std::holds_alternative<HostLost>(event)) return 1;
  return std::holds_alternative<Interrupted>(event) ? 3 : 4;
}

}  // namespace

ExitStatus exit_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status)};
}

int wait_status(const ExitStatus& status) { return W_EXITCODE(status.code, status.signal); }

Driver::Driver(const DriverOptions& options) : options_(options) {
  for (int host = 0; host < options.hosts; ++host) hosts_left_.insert(host);
}

std::vector<Action> Driver::on(TimePoint now, std::vector<Event> events) {
  std::stable_sort(events.begin(), events.end(), [](const Event& left, const Event& right) {
    return weight(left) < weight(right);
  });
  for (const Event& event : events) std::visit([&](const auto& one) { take(now, one); }, event);
  pass(now);
  return std::exchange(actions_, {});
}

std::optional<TimePoint> Driver::deadline() const {
  TimePoint next = until_;
  for (const auto& [rank, suspect] : suspects_) next = std::min(next, suspect.until);
  if (next == TimePoint::max()) return std::nullopt;
  return next;
}

void Driver::take(TimePoint now, const RankExited& event) {
  if (!exited_.emplace(event.rank, event.status).second) return;
  const auto suspect = suspects_.find(event.rank);
  if (event.status.ok()) {
    if (suspect != suspects_.end()) suspect->second.until = now;  // it got over it
  } else if (exit_code_) {
    announce_following(event.rank, event.status);
  } else if (suspect != suspects_.end() && is_running(suspect->second.says.cause)) {
    suspect->second.exited = event.status;
    suspect->second.until = now + options_.blame;
  } else {
    announce_first(now, event.rank, event.status);
  }
  judge(now);
}

void Driver::take(TimePoint now, const RankEnds& event) {
  const bool sensible =
      event.cause >= 0 && event.cause < options_.ranks && event.cause != event.rank;
  if (!sensible || !is_running(event.rank)) return;
  const bool hold = !exit_code_ && is_running(event.cause);
  const TimePoint until = hold ? now + options_.blame : TimePoint::max();
  suspects_.insert_or_assign(event.rank, Suspect{.says = event, .until = until});
  if (hold) actions_.push_back(HoldOutput{event.rank});
}

void Driver::take(TimePoint now, const Interrupted& event) {
  if (!exit_code_) exit_code_ = ExitStatus{.signal = event.signal}.shell_code();
  judge(now);
  if (phase_ >= Phase::terminating) {
    kill(now);
  } else {
    actions_.push_back(SignalAll{SIGTERM});
    enter(Phase::terminating, now + options_.patience);
  }
}

void Driver::take(TimePoint now, const NothingLeft& event) { leave(now, event.host); }

void Driver::take(TimePoint now, const HostLost& event) {
  if (!hosts_left_.contains(event.host)) return;
  AnnounceHost lost{.host = event.host, .ranks = {}, .why = event.why, .first = !exit_code_};
  for (const int rank : event.ranks)
    if (exited_.emplace(rank, ExitStatus{.code = event.exit_code}).second)
      lost.ranks.push_back(rank);
  lost.first = lost.first && !lost.ranks.empty();
  if (lost.first) exit_code_ = event.exit_code;
  actions_.push_back(lost);
  if (lost.first && phase_ == Phase::running) enter(Phase::grace, now + options_.grace);
  judge(now);
  leave(now, event.host);
}

void Driver::leave(TimePoint now, int host) {
  if (hosts_left_.erase(host) == 1 && hosts_left_.empty()) finish(now);
}

void Driver::finish(TimePoint now) {
  TimePoint settled = now;  // nobody will exit any more: every suspect's time is up
  for (const auto& [rank, suspect] : suspects_)
    if (suspect.until != TimePoint::max()) settled = std::max(settled, suspect.until);
  judge(settled);
  actions_.push_back(Finish{exit_code_.value_or(0)});
  enter(Phase::finished, TimePoint::max());
}

void Driver::pass(TimePoint now) {
  judge(now);
  if (phase_ == Phase::running && static_cast<int>(exited_.size()) == options_.ranks)
    enter(Phase::grace, now + options_.grace);
  if (now < until_) return;
  if (phase_ == Phase::grace) {
    actions_.push_back(SignalAll{SIGTERM});
    enter(Phase::terminating, now + options_.patience);
  } else if (phase_ == Phase::terminating) {
    kill(now);
  } else if (phase_ == Phase::killing) {
    actions_.push_back(Abandon{{hosts_left_.begin(), hosts_left_.end()}});
    finish(now);
  }
}

void Driver::kill(TimePoint now) {
  actions_.push_back(SignalAll{SIGKILL});
  // A second interruption does not put the end off.
  if (phase_ != Phase::killing) enter(Phase::killing, now + options_.farewell);
}

void Driver::announce_first(TimePoint now, int rank, ExitStatus status) {
  Announce first{.kind = Announce::Kind::first, .rank = rank, .status = status};
  if (const auto suspect = suspects_.find(rank); suspect != suspects_.end()) {
    first.cause = suspect->second.says.cause;
    first.reason = suspect->second.says.reason;
    suspect->second.exited.reset();
  }
  exit_code_ = status.shell_code();
  actions_.push_back(std::move(first));
  if (phase_ == Phase::running) enter(Phase::grace, now + options_.grace);
}

void Driver::announce_following(int rank, ExitStatus status) {
  Announce following{.kind = Announce::Kind::later, .rank = rank, .status = status};
  const auto suspect = suspects_.find(rank);
  if (phase_ >= Phase::terminating && (status.signal == SIGTERM || status.signal == SIGKILL)) {
    following.kind = Announce::Kind::stopped;
  } else if (suspect != suspects_.end()) {
    following.kind = Announce::Kind::consequence;
    following.cause = suspect->second.says.cause;
    following.reason = suspect->second.says.reason;
  }
  actions_.push_back(std::move(following));
}

/// Settles every suspect about whom enough is known: who it blames has exited, or its time is up.
void Driver::judge(TimePoint now) {
  while (!exit_code_) {
    // The first to have exited is the first to be blamed in turn.
    Suspect* earliest = nullptr;
    for (auto& [rank, suspect] : suspects_) {
      const bool due = !is_running(suspect.says.cause) && exited_.at(suspect.says.cause).ok();
      if (suspect.exited && (due || now >= suspect.until))
        if (earliest == nullptr || suspect.until < earliest->until) earliest = &suspect;
    }
    if (earliest == nullptr) break;
    announce_first(now, earliest->says.rank, *earliest->exited);
  }
  for (auto& [rank, suspect] : suspects_) {
    if (suspect.until == TimePoint::max() || (!exit_code_ && now < suspect.until)) continue;
    suspect.until = TimePoint::max();
    actions_.push_back(ReleaseOutput{rank});
    if (suspect.exited) announce_following(rank, *suspect.exited);
    suspect.exited.reset();
  }
}

void Driver::enter(Phase phase, TimePoint until) {
  phase_ = phase;
  until_ = until;
}

}  // namespace hvd::job
