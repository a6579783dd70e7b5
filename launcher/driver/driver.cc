#include "launcher/driver/driver.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace hvd::launcher {
namespace {

/// After SIGKILL, until the user is told what the launcher waits for.
constexpr std::chrono::seconds kSilentWait{1};

/// What workers say before they end is processed before exits. A death by signal is processed
/// before an exit with a code: the first often causes the second, and both may be seen at once.
int weight(const Event& event) {
  if (std::holds_alternative<WorkerEnds>(event)) return 0;
  if (std::holds_alternative<elastic::WorkerLeaves>(event)) return 0;
  if (const auto* exited = std::get_if<WorkerExited>(&event))
    return exited->status.signal != 0 ? 1 : 2;
  if (std::holds_alternative<HostLost>(event)) return 1;
  return std::holds_alternative<Interrupted>(event) ? 3 : 4;
}

/// No rank ends in this way because of another one, whatever it has reported before.
bool was_killed(const ExitStatus& status) { return status.shell_code() == kShellSignal + SIGKILL; }

}  // namespace

ExitStatus exit_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status)};
}

int wait_status(const ExitStatus& status) { return W_EXITCODE(status.code, status.signal); }

Driver::Driver(const DriverOptions& options)
    : options_(options),
      running_(options.workers.begin(), options.workers.end()),
      elastic_(options.elastic) {
  for (const WorkerId& worker : options.workers) hosts_left_.insert(worker.host);
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
  for (const auto& [worker, suspect] : suspects_) next = std::min(next, suspect.until);
  if (goes_on()) next = std::min(next, elastic::deadline(*elastic_).value_or(next));
  if (looks_for_stopped()) next = std::min(next, stopped_.due(options_.heartbeat));
  if (next == TimePoint::max()) return std::nullopt;
  return next;
}

void Driver::take(TimePoint now, const WorkerExited& event) {
  if (running_.erase(event.worker) == 0) return;
  exited_.emplace(event.worker, event.status);
  if (goes_on()) return go_on_without(now, event);
  if (dismissed_.contains(event.worker)) return;
  const auto suspect = suspects_.find(event.worker);
  if (event.status.ok()) {
    refuse_starts(event.worker);
    if (suspect != suspects_.end()) suspect->second.until = now;  // it recovered from the loss
  } else if (exit_code_) {
    announce_following(event.worker, event.status);
  } else if (suspect != suspects_.end() && is_running(suspect->second.says.cause) &&
             !was_killed(event.status)) {
    suspect->second.exited = event.status;
    suspect->second.until = now + std::max(options_.blame, options_.grace);
  } else {
    announce_first(now, event.worker, event.status);
  }
  judge(now);
}

void Driver::take(TimePoint now, const WorkerEnds& event) {
  if (event.cause_is_silent)
    decide(now, elastic::WorkerSilent{event.worker, event.cause, event.reason});
  if (event.cause == event.worker || !is_running(event.worker) || goes_on()) return;
  if (event.cause_is_silent) silent_.emplace(event.cause, event.reason);
  const bool hold = !exit_code_ && is_running(event.cause);
  const TimePoint until = hold ? now + options_.blame : TimePoint::max();
  suspects_.insert_or_assign(event.worker, Suspect{.says = event, .until = until});
  if (hold) actions_.push_back(HoldOutput{event.worker});
}

void Driver::take(TimePoint now, const Interrupted& event) {
  const bool again = event.signal == SIGINT && phase_ == Phase::interrupting;
  if (again && now < interrupted_at_ + options_.same_interrupt) return;
  if (event.signal != SIGINT) {
    if (told_to_end_at_ && now < *told_to_end_at_ + options_.same_end) return;
    told_to_end_at_ = now;
  }
  if (!exit_code_) exit_code_ = ExitStatus{.signal = event.signal}.shell_code();
  judge(now);
  if (phase_ >= Phase::terminating) {
    actions_.push_back(AnnounceEnd{event, SIGKILL, options_.farewell});
    kill(now);
  } else if (event.signal == SIGINT && !again) {
    interrupt(now, event);
  } else {
    const Duration patience = std::max(options_.patience, options_.grace);
    actions_.push_back(AnnounceEnd{event, SIGTERM, patience});
    terminate(now, patience);
  }
}

/// In an elastic job, a worker may have been started there since.
void Driver::take(TimePoint now, const NothingLeft& event) {
  const auto is_there = [&](const WorkerId& worker) { return worker.host == event.host; };
  if (elastic_ && std::ranges::any_of(running_, is_there)) return;
  leave(now, event.host);
}

void Driver::take(TimePoint now, const HostLost& event) {
  if (goes_on()) return go_on_without(now, event);
  if (!hosts_left_.contains(event.host)) return;
  AnnounceHost lost = lost_with(event);
  lost.first = lost.first && !lost.workers.empty();
  if (lost.first) exit_code_ = event.exit_code;
  actions_.push_back(lost);
  if (lost.first && phase_ == Phase::running) enter(Phase::grace, now + options_.grace);
  judge(now);
  leave(now, event.host);
}

/// Its exit code does not count, except for that of the job, if all workers leave.
void Driver::take(TimePoint now, const elastic::WorkerLeaves& event) {
  if (goes_on() && is_running(event.worker))
    last_failure_ = ExitStatus{.signal = SIGTERM}.shell_code();
  decide(now, event);
}

/// Its workers end.
AnnounceHost Driver::lost_with(const HostLost& event) {
  AnnounceHost lost{.host = event.host, .workers = {}, .why = event.why, .first = !exit_code_};
  for (const WorkerId& worker : running_)
    if (worker.host == event.host) lost.workers.push_back(worker);
  for (const WorkerId& worker : lost.workers) {
    running_.erase(worker);
    exited_.emplace(worker, ExitStatus{.code = event.exit_code});
  }
  return lost;
}

std::vector<Action> Driver::decided(TimePoint now, const elastic::Event& event) {
  elastic::Decision decision = elastic::decide(now, std::move(*elastic_), event);
  elastic_ = std::move(decision.state);
  std::vector<Action> actions;
  for (std::string& text : decision.explanation) actions.push_back(Explain{std::move(text)});
  for (const elastic::Action& action : decision.actions) actions.push_back(prepared(action));
  return actions;
}

Action Driver::prepared(const elastic::Action& action) {
  if (const auto* start = std::get_if<elastic::StartWorker>(&action)) {
    running_.insert(start->worker);
    hosts_left_.insert(start->worker.host);
  } else if (const auto* dismiss = std::get_if<elastic::Dismiss>(&action)) {
    dismissed_.insert(dismiss->worker);
  } else if (const auto* end = std::get_if<elastic::End>(&action)) {
    shortage_ = end->why;
  } else if (const auto* close = std::get_if<elastic::Close>(&action)) {
    done_ = close->why;
  }
  return std::visit([](const auto& one) { return Action{one}; }, action);
}

void Driver::decide(TimePoint now, const elastic::Event& event) {
  if (!goes_on()) return;
  for (Action& action : decided(now, event)) actions_.push_back(std::move(action));
  end_if_short(now);
}

void Driver::go_on_without(TimePoint now, const WorkerExited& event) {
  const bool counts = !event.status.ok() && !dismissed_.contains(event.worker);
  std::vector<Action> actions = decided(now, elastic::WorkerEnded{event.worker, event.status.ok()});
  if (counts) {
    const auto kind = shortage_ ? Announce::Kind::first : Announce::Kind::survived;
    actions_.push_back(Announce{.kind = kind, .worker = event.worker, .status = event.status});
    last_failure_ = event.status.shell_code();
  }
  for (Action& action : actions) actions_.push_back(std::move(action));
  end_if_short(now);
}

void Driver::go_on_without(TimePoint now, const HostLost& event) {
  AnnounceHost lost = lost_with(event);
  hosts_left_.erase(event.host);
  last_failure_ = event.exit_code;
  std::vector<Action> actions = decided(now, elastic::HostGone{event.host});
  lost.first = shortage_.has_value();
  actions_.push_back(std::move(lost));
  for (Action& action : actions) actions_.push_back(std::move(action));
  end_if_short(now);
}

void Driver::end_if_short(TimePoint now) {
  if (!shortage_ || exit_code_) return;
  exit_code_ = last_failure_;
  actions_.push_back(AnnounceShortage{*shortage_});
  enter(Phase::grace, now + options_.grace);
  if (hosts_left_.empty()) finish(now);
}

/// Those that have given up the others may have ended well, as at the end of their scripts.
void Driver::end_if_silent(TimePoint now) {
  const auto is_silent = [this](const WorkerId& worker) { return silent_.contains(worker); };
  const auto is_well = [](const auto& exited) { return exited.second.ok(); };
  if (exit_code_ || running_.empty() || !std::ranges::all_of(running_, is_silent)) return;
  if (!std::ranges::all_of(exited_, is_well)) return;  // one that has failed is announced
  const auto& [worker, why] = *silent_.find(*running_.begin());
  end_without(now, worker, why);
}

void Driver::end_without(TimePoint now, const WorkerId& silent, const std::string& why) {
  exit_code_ = kSilent;
  actions_.push_back(AnnounceSilent{silent, why});
  enter(Phase::grace, now + options_.grace);
}

/// In an elastic job the decisions look.
bool Driver::looks_for_stopped() const {
  return !elastic_ && options_.heartbeat > Duration(0) && phase_ == Phase::running &&
         running_.size() > 1;
}

void Driver::take(TimePoint now, const WorkersStopped& event) {
  if (elastic_) return decide(now, event);
  if (!looks_for_stopped()) return;
  const std::vector<WorkerId> given_up = stopped_.answer(event.workers);
  const auto first =
      std::ranges::find_if(given_up, [this](const WorkerId& worker) { return is_running(worker); });
  if (first == given_up.end()) return;
  end_without(now, *first,
              "its process is stopped (SIGSTOP), and others wait for it in hvd.init()");
}

/// A worker without a place does not hold up the end of the job.
bool Driver::all_have_ended() const {
  return std::ranges::all_of(
      running_, [this](const WorkerId& worker) { return dismissed_.contains(worker); });
}

void Driver::leave(TimePoint now, int host) {
  if (hosts_left_.erase(host) == 1 && hosts_left_.empty()) finish(now);
}

void Driver::finish(TimePoint now) {
  TimePoint settled = now;  // all workers have exited: every suspect's time is up
  for (const auto& [worker, suspect] : suspects_)
    if (suspect.until != TimePoint::max()) settled = std::max(settled, suspect.until);
  judge(settled);
  actions_.push_back(Finish{exit_code_.value_or(0)});
  enter(Phase::finished, TimePoint::max());
}

void Driver::pass(TimePoint now) {
  const bool due = goes_on() && now >= elastic::deadline(*elastic_).value_or(TimePoint::max());
  if (due) decide(now, elastic::TimePassed{});
  if (looks_for_stopped() && now >= stopped_.due(options_.heartbeat)) {
    stopped_.look(now, options_.heartbeat);
    actions_.push_back(LookForStopped{.only_in_init = true});
  }
  judge(now);
  if (phase_ == Phase::running && !goes_on()) end_if_silent(now);
  if (all_have_ended() && !goes_on()) {
    if (phase_ == Phase::running) enter(Phase::grace, now + options_.grace);
    if (phase_ == Phase::interrupting) until_ = std::min(until_, now + options_.grace);
  }
  if (now < until_) return;
  if (phase_ == Phase::grace || phase_ == Phase::interrupting) {
    terminate(now, options_.patience);
  } else if (phase_ == Phase::terminating) {
    kill(now);
  } else if (phase_ == Phase::killing) {
    const Duration left = std::max(abandons_at_ - now, Duration(0));
    actions_.push_back(Abandon{{hosts_left_.begin(), hosts_left_.end()}, left});
    if (left == Duration(0)) return finish(now);
    until_ = abandons_at_;
  }
}

/// Does not extend the deadline that an earlier failure has set.
void Driver::interrupt(TimePoint now, const Interrupted& by) {
  const Duration patience = std::max(options_.interrupt_patience, options_.grace);
  const TimePoint until = std::min(until_, now + patience);
  interrupted_at_ = now;
  actions_.push_back(AnnounceEnd{by, SIGINT, until - now});
  actions_.push_back(SignalAll{SIGINT});
  enter(Phase::interrupting, until);
}

void Driver::terminate(TimePoint now, Duration patience) {
  actions_.push_back(SignalAll{SIGTERM});
  enter(Phase::terminating, now + patience);
}

void Driver::kill(TimePoint now) {
  actions_.push_back(SignalAll{SIGKILL});
  // A second interruption does not extend the deadline.
  if (phase_ == Phase::killing) return;
  abandons_at_ = now + options_.farewell;
  enter(Phase::killing, std::min(now + kSilentWait, abandons_at_));
}

void Driver::announce_first(TimePoint now, const WorkerId& worker, ExitStatus status) {
  Announce first{.kind = Announce::Kind::first, .worker = worker, .status = status};
  const auto suspect = suspects_.find(worker);
  if (suspect != suspects_.end() && !was_killed(status)) {
    first.cause = suspect->second.says.cause;
    first.reason = suspect->second.says.reason;
    suspect->second.exited.reset();
  }
  exit_code_ = status.shell_code();
  if (done_) actions_.push_back(elastic::Say{*done_});  // perhaps it has ended too early
  actions_.push_back(std::move(first));
  if (phase_ == Phase::running) enter(Phase::grace, now + options_.grace);
}

/// In an elastic job the decisions refuse them.
void Driver::refuse_starts(const WorkerId& without) {
  if (elastic_ || exit_code_ || std::exchange(starts_refused_, true)) return;
  actions_.push_back(RefuseStarts{without});
}

/// Also true if a shell around the worker reports the signal as its exit code.
bool Driver::ended_by_us(const ExitStatus& status) const {
  const int code = status.shell_code();
  if (code == kShellSignal + SIGINT) return phase_ >= Phase::interrupting;
  return phase_ >= Phase::terminating &&
         (code == kShellSignal + SIGTERM || code == kShellSignal + SIGKILL);
}

void Driver::announce_following(const WorkerId& worker, ExitStatus status) {
  Announce following{.kind = Announce::Kind::later, .worker = worker, .status = status};
  const auto suspect = suspects_.find(worker);
  if (ended_by_us(status)) {
    following.kind = Announce::Kind::stopped;
  } else if (suspect != suspects_.end()) {
    following.kind = Announce::Kind::consequence;
    following.cause = suspect->second.says.cause;
    following.reason = suspect->second.says.reason;
  }
  actions_.push_back(std::move(following));
}

/// Settles every suspect whose named cause has exited or whose time is up.
void Driver::judge(TimePoint now) {
  while (!exit_code_) {
    // The suspect that exited first is the first one to be settled.
    Suspect* earliest = nullptr;
    for (auto& [worker, suspect] : suspects_) {
      const bool due = !is_running(suspect.says.cause) && exited_.at(suspect.says.cause).ok();
      if (suspect.exited && (due || now >= suspect.until))
        if (earliest == nullptr || suspect.until < earliest->until) earliest = &suspect;
    }
    if (earliest == nullptr) break;
    announce_first(now, earliest->says.worker, *earliest->exited);
  }
  for (auto& [worker, suspect] : suspects_) {
    if (suspect.until == TimePoint::max() || (!exit_code_ && now < suspect.until)) continue;
    suspect.until = TimePoint::max();
    actions_.push_back(ReleaseOutput{worker});
    if (suspect.exited) announce_following(worker, *suspect.exited);
    suspect.exited.reset();
  }
}

void Driver::enter(Phase phase, TimePoint until) {
  if (elastic_ && phase_ == Phase::running) actions_.push_back(NoMoreWorkers{});
  phase_ = phase;
  until_ = until;
}

}  // namespace hvd::launcher
