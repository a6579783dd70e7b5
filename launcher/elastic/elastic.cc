#include "launcher/elastic/elastic.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "launcher/elastic/chance.h"
#include "launcher/elastic/questions.h"
#include "launcher/elastic/shortage.h"

namespace hvd::launcher::elastic {
namespace {

using Seconds = std::chrono::duration<double>;

/// One decision. Owns the state while it is made.
class Making {
 public:
  Making(TimePoint now, State state) : now_(now), state_(std::move(state)) {}

  Decision make(const Event& event) {
    if (!state_.over) {
      std::visit([this](const auto& one) { take(one); }, event);
      if (!state_.over) go_on();
    }
    return {std::move(state_), std::move(actions_), std::move(explanation_)};
  }

 private:
  void take(const WorkerEnded& event) {
    const auto found = state_.workers.find(event.worker);
    state_.silent_since.erase(event.worker.host);
    state_.dismissed.erase(event.worker);
    state_.leaving.erase(event.worker);
    state_.versions.erase(event.worker);
    const bool by_us = state_.killed.erase(event.worker) == 1;
    if (found == state_.workers.end()) return;
    const bool member = is_member(found->second);
    state_.workers.erase(found);
    if (member && event.well) return close(event.worker);
    if (!by_us) count_failure(event.worker.host);
    if (member) abandon(fmt::format("{} was lost", name_of(event.worker)));
  }

  void take(const HostGone& event) {
    const auto is_there = [&](const WorkerId& worker) { return worker.host == event.host; };
    const bool members = std::ranges::any_of(state_.workers, [&](const auto& entry) {
      return is_there(entry.first) && is_member(entry.second);
    });
    std::erase_if(state_.workers, [&](const auto& entry) { return is_there(entry.first); });
    std::erase_if(state_.dismissed, is_there);
    std::erase_if(state_.leaving, is_there);
    std::erase_if(state_.versions, [&](const auto& entry) { return is_there(entry.first); });
    state_.silent_since.erase(event.host);
    Host* const host = find(event.host);
    if (host == nullptr) return;
    host->now.slots = 0;
    host->lost = true;
    drop(*host, "it was lost");
    if (members) abandon(fmt::format("host {} was lost", host->now.name));
  }

  /// Hosts keep their count of failures while they are away.
  void take(const HostsFound& event) {
    std::vector<Host> hosts;
    for (const HostSlots& found : event.hosts) {
      const Host* const known = find(found.host);
      hosts.push_back(known != nullptr ? *known : Host{});
      note_change(known == nullptr ? 0 : known->now.slots, found);
      hosts.back().now = found;
      if (hosts.back().lost) hosts.back().now.slots = 0;  // until it is connected again
    }
    for (Host& known : state_.hosts) {
      if (std::ranges::find(event.hosts, known.now.host, &HostSlots::host) != event.hosts.end())
        continue;
      HostSlots gone = known.now;
      gone.slots = 0;
      note_change(known.now.slots, gone);
      known.now = gone;
      hosts.push_back(known);
    }
    state_.hosts = std::move(hosts);
    dismiss_newcomers_without_slot();
  }

  void take(const WorkerAsks& event) {
    state_.silent_since.erase(event.worker.host);
    const auto found = state_.workers.find(event.worker);
    if (found == state_.workers.end()) return;
    state_.versions[event.worker] = event.version;
    if (found->second == Standing::running) found->second = Standing::asking;
    if (found->second != Standing::starting) return;
    found->second = Standing::waiting;
    if (!state_.gathering_since) state_.gathering_since = now_;
    explain("{} is ready to join", name_of(event.worker));
  }

  /// What a worker says that was given up itself does not count: it may be cut off. A worker that
  /// asks is alive.
  void take(const WorkerSilent& event) {
    const auto found = state_.workers.find(event.worker);
    if (found == state_.workers.end() || found->second != Standing::running) return;
    if (!state_.workers.contains(event.by)) return;
    give_up(event.worker, fmt::format("{} was given up: {}", name_of(event.worker), event.why));
    actions_.push_back(Kill{event.worker});
    if (event.by.host != event.worker.host) state_.silent_since.emplace(event.worker.host, now_);
  }

  /// While members wait for it, it is as good as silent: it may have no operation in which others
  /// could notice.
  void take(const WorkersStopped& event) {
    StoppedSearch* const search = search_now(state_);
    if (search == nullptr) return;
    for (const WorkerId& worker : search->answer(event.workers)) {
      const auto found = state_.workers.find(worker);
      if (found == state_.workers.end() || found->second != Standing::running) continue;
      give_up(worker, name_of(worker) +
                          " was given up: its process is stopped (SIGSTOP), and "
                          "others wait for it");
      actions_.push_back(Kill{worker});
    }
  }

  /// Counts as a failure of its host, since the host may be about to go.
  void take(const WorkerLeaves& event) {
    const auto found = state_.workers.find(event.worker);
    if (found == state_.workers.end() || !is_member(found->second)) return;
    state_.leaving.insert(event.worker);
    give_up(event.worker, fmt::format("{} leaves at a commit", name_of(event.worker)));
    state_.last_left = true;
  }

  void take(const TimePassed&) {}

  void go_on() {
    end_cooldowns();
    give_up_silent_members();
    give_up_silent_hosts();
    look_into_wait();
    look_into_forming();
    if (members() == 0) return end_when_all_have_left();
    reject_misfits();
    start_workers();
    if (count(Standing::running) == 0) begin_generation();
    if (!state_.over) tell();
    if (!state_.over) look_for_shortage();
    if (!state_.over && state_.settings.kill_every) kill_in_time();
  }

  /// Those that leave may still do something when they end. The end of the job would stop them.
  void end_when_all_have_left() {
    if (state_.leaving.empty()) return end(nobody_is_left(state_));
    state_.short_since.reset();
    state_.kill_at.reset();
  }

  /// The choice depends only on the seed, the number of the kill and the members that are left.
  void kill_in_time() {
    const Duration every = *state_.settings.kill_every;
    if (!state_.kill_at) state_.kill_at = now_ + every;
    if (now_ < *state_.kill_at) return;
    state_.kill_at = now_ + every;
    std::vector<WorkerId> members;
    for (const AssignedWorker& worker : state_.assignment.workers())
      if (state_.workers.contains(worker.id) && !state_.killed.contains(worker.id))
        members.push_back(worker.id);
    if (members.size() < 2) return explain("--chaos kills no rank: only one has the state");
    const WorkerId chosen =
        members[random_number(state_.settings.seed, ++state_.kills, 0) % members.size()];
    state_.killed.insert(chosen);
    actions_.push_back(Say{fmt::format("--chaos kills {} (kill {}, seed {})", name_of(chosen),
                                       state_.kills, state_.settings.seed)});
    actions_.push_back(Kill{chosen});
  }

  /// A host counts as newly added then.
  void end_cooldowns() {
    for (Host& host : state_.hosts) {
      if (!host.back_at || now_ < *host.back_at) continue;
      host.back_at.reset();
      host.dropped = false;
      host.failures = 0;
      explain("{} may be used again", host.now.name);
      if (std::exchange(host.lost, false)) actions_.push_back(Reconnect{host.now.host});
    }
  }

  /// A member that is stopped, or whose step takes very long, does not hold up the others.
  void give_up_silent_members() {
    if (count(Standing::asking) == 0) return state_.wait.reset();
    if (!state_.wait) state_.wait = Wait{.since = now_, .stopped = StoppedSearch(now_)};
    if (now_ < state_.wait->since + state_.settings.survivor) return;
    std::vector<WorkerId> silent;
    for (const auto& [worker, standing] : state_.workers)
      if (standing == Standing::running) silent.push_back(worker);
    for (const WorkerId& worker : silent)
      give_up(worker, fmt::format("{} was given up: it did not ask for its next place within {} s "
                                  "after another rank (HOROVOD_SURVIVOR_TIMEOUT)",
                                  name_of(worker), seconds_of(state_.settings.survivor)));
  }

  /// Only one rank of each host is watched by ranks of other hosts.
  void give_up_silent_hosts() {
    std::vector<WorkerId> silent;
    for (const auto& [worker, standing] : state_.workers) {
      const auto since = state_.silent_since.find(worker.host);
      const bool is_late = since != state_.silent_since.end() && now_ >= since->second + kNoNews;
      if (is_late && standing == Standing::running) silent.push_back(worker);
    }
    std::erase_if(state_.silent_since,
                  [this](const auto& entry) { return now_ >= entry.second + kNoNews; });
    for (const WorkerId& worker : silent)
      give_up(worker, fmt::format("{} was given up: nothing has come from its host for {} s since "
                                  "another rank there was silent",
                                  name_of(worker), Seconds(kNoNews).count()));
  }

  /// Once in each wait it is explained to the user. Stopped members are looked for again and again.
  void look_into_wait() {
    if (!state_.wait || count(Standing::running) == 0) return;
    Wait& wait = *state_.wait;
    if (!wait.is_explained && now_ >= explains_at(state_)) {
      wait.is_explained = true;
      actions_.push_back(ExplainWait{});
    }
    if (state_.settings.heartbeat > Duration{}) look(wait.stopped, false);
  }

  /// In `init` there are no signs of life. A member may have been stopped since it asked.
  void look_into_forming() {
    if (!state_.forming) return;
    if (state_.wait || now_ >= state_.forming->until.value_or(TimePoint::max()))
      return state_.forming.reset();
    look(state_.forming->stopped, true);
  }

  void look(StoppedSearch& search, bool only_in_init) {
    if (now_ < search.due(state_.settings.heartbeat)) return;
    search.look(now_, state_.settings.heartbeat);
    actions_.push_back(LookForStopped{only_in_init});
  }

  void give_up(const WorkerId& worker, const std::string& why) {
    actions_.push_back(Say{why + "; the job goes on without it"});
    dismiss(worker, why, false);
    count_failure(worker.host);
    abandon(why);
  }

  /// The version of the members is known when one of them has asked: before a newcomer joins.
  void reject_misfits() {
    const auto has_asked = [this](const auto& entry) {
      return is_member(entry.second) && state_.versions.contains(entry.first);
    };
    const auto member = std::ranges::find_if(state_.workers, has_asked);
    if (member == state_.workers.end()) return;
    const std::string ours = state_.versions.at(member->first);
    std::vector<WorkerId> misfits;
    for (const auto& [worker, standing] : state_.workers)
      if (standing == Standing::waiting && state_.versions.at(worker) != ours)
        misfits.push_back(worker);
    for (const WorkerId& worker : misfits) {
      const std::string why = fmt::format(
          "{} was rejected: it has Horovod {}, and {} has Horovod {}; install the same one",
          name_of(worker), state_.versions.at(worker), name_of(member->first), ours);
      actions_.push_back(Say{why});
      dismiss(worker, why, false);
      count_failure(worker.host);
    }
  }

  /// Starts workers in free slots, up to the target.
  void start_workers() {
    if (no_more_resets(state_)) return;
    for (auto live = placed(); live < static_cast<size_t>(state_.settings.target); ++live) {
      const auto slot = free_slot();
      if (!slot) return;
      const int incarnation = state_.started[*slot]++;
      const WorkerId worker{slot->first, slot->second, incarnation};
      state_.workers.emplace(worker, Standing::starting);
      actions_.push_back(StartWorker{worker});
      explain("starts {}: the job has {} of {} workers", name_of(worker), live,
              state_.settings.target);
    }
  }

  std::optional<std::pair<int, int>> free_slot() const {
    std::set<std::pair<int, int>> taken;
    for (const auto& [worker, standing] : state_.workers) taken.insert({worker.host, worker.slot});
    for (const WorkerId& worker : state_.dismissed) taken.insert({worker.host, worker.slot});
    for (const Host& host : state_.hosts)
      for (int slot = 0; !host.dropped && slot < host.now.slots; ++slot)
        if (!taken.contains({host.now.host, slot})) return std::pair(host.now.host, slot);
    return std::nullopt;
  }

  void begin_generation() {
    std::vector<WorkerId> stay, join, leave;
    for (const auto& [worker, standing] : state_.workers) {
      if (is_member(standing)) (has_slot(worker) ? stay : leave).push_back(worker);
      if (standing == Standing::waiting) join.push_back(worker);
    }
    if (stay.empty())
      return end("the hosts of all workers that have the state of the job were removed");
    const size_t target = std::max(static_cast<size_t>(state_.settings.target), stay.size());
    join.resize(std::min(join.size(), target - stay.size()));
    if (no_more_resets(state_))
      return end(fmt::format("the job was reset {} times, which is the limit (--reset-limit)",
                             state_.resets));
    if (stay.size() + join.size() < static_cast<size_t>(state_.settings.min)) return;
    for (const WorkerId& worker : leave)
      dismiss(worker, "its host or slot was removed from the job", false);
    explain("generation {} begins with {}, {} of them new", state_.assignment.generation() + 1,
            count_of(stay.size() + join.size()), join.size());
    std::ranges::copy(join, std::back_inserter(stay));
    state_.assignment = reassign_ranks(state_.assignment, std::move(stay));
    for (const AssignedWorker& worker : state_.assignment.workers())
      state_.workers[worker.id] = Standing::running;
    actions_.push_back(Begin{state_.assignment});
    ++state_.resets;
    state_.told = {};
    state_.gathering_since.reset();
    state_.wait.reset();
    state_.forming.reset();
    if (state_.settings.heartbeat > Duration{} && members() > 1)
      state_.forming = Forming{now_ + state_.settings.start, StoppedSearch(now_)};
  }

  /// The members learn once per generation that workers join, and once that workers leave.
  void tell() {
    if (count(Standing::running) == 0 || no_more_resets(state_)) return;
    const bool gathered = count(Standing::starting) == 0 ||
                          (state_.gathering_since && now_ >= *state_.gathering_since + kGathering);
    Tell news;
    news.added = !state_.told.added && count(Standing::waiting) > 0 && gathered;
    news.removed =
        !state_.told.removed && std::ranges::any_of(state_.workers, [&](const auto& one) {
          return is_member(one.second) && !has_slot(one.first);
        });
    if (news == Tell{}) return;
    actions_.push_back(news);
    state_.told.added |= news.added;
    state_.told.removed |= news.removed;
    explain("tells the workers that others {}", !news.removed ? "join"
                                                : news.added  ? "join and leave"
                                                              : "leave");
  }

  void look_for_shortage() {
    const size_t starting = count(Standing::starting), ready = placed() - starting;
    const auto min = static_cast<size_t>(state_.settings.min);
    if (ready >= min) return state_.short_since.reset();
    const auto seconds = seconds_of(state_.settings.patience);
    const std::string few = few_are_left(ready, state_.settings.min);
    const std::string hope = awaited(state_, min - ready, starting);
    if (hope.empty() && !free_slot()) return end(few + ", and there is no slot for another one");
    if (!state_.short_since) {
      state_.short_since = now_;
      state_.is_shortage_told = false;
    }
    const bool is_due = !state_.is_shortage_told && now_ >= tells_of_shortage_at(state_);
    if (is_due) state_.is_shortage_told = true;
    const bool may_grow = !no_more_resets(state_);  // else it ends when its members have asked
    if (is_due && may_grow)
      actions_.push_back(Say{fmt::format("{}: the job waits up to {} s (--elastic-timeout) for {}",
                                         few, seconds, hope)});
    if (now_ >= *state_.short_since + state_.settings.patience)
      end(fmt::format("{}, and no others joined within {} s (--elastic-timeout)", few, seconds));
  }

  void dismiss_newcomers_without_slot() {
    std::vector<std::pair<WorkerId, Standing>> gone;
    for (const auto& [worker, standing] : state_.workers)
      if (!is_member(standing) && !has_slot(worker)) gone.emplace_back(worker, standing);
    for (const auto& [worker, standing] : gone)
      dismiss(worker, "its host or slot was removed from the job", standing == Standing::starting);
  }

  void dismiss(const WorkerId& worker, const std::string& why, bool stop) {
    state_.workers.erase(worker);
    state_.dismissed.insert(worker);
    actions_.push_back(Dismiss{worker, why, stop});
    explain("{} leaves: {}", name_of(worker), why);
  }

  /// The members that run on end as they like, those that have asked for another generation cannot.
  void close(const WorkerId& first) {
    const std::string why = fmt::format(
        "{} has ended with exit code 0, which means that the job is done", name_of(first));
    std::vector<WorkerId> newcomers;
    for (const auto& [worker, standing] : state_.workers)
      if (!is_member(standing)) newcomers.push_back(worker);
    for (const WorkerId& worker : newcomers) dismiss(worker, why, true);
    actions_.push_back(Close{why});
    explain("{}: no other generation begins", why);
    state_.over = true;
  }

  void end(const std::string& why) {
    actions_.push_back(End{why});
    explain("the job ends: {}", why);
    state_.over = true;
  }

  void abandon(const std::string& why) {
    state_.last_left = false;
    actions_.push_back(Abandon{state_.assignment.generation(), why});
    explain("{}: {} left", why, count_of(members()));
  }

  void count_failure(int index) {
    Host* const host = find(index);
    if (host == nullptr) return;
    ++host->failures;
    if (state_.settings.cooldown || host->failures >= kFailuresUntilDropped)
      drop(*host, count_of(static_cast<size_t>(host->failures)) + " failed or left there");
  }

  /// The user could not know otherwise why the job stays smaller.
  void drop(Host& host, const std::string& why) {
    if (std::exchange(host.dropped, true)) return;
    std::string until;
    if (state_.settings.cooldown) {
      const double part = random_part(state_.settings.seed, host.now.host, host.drops);
      const Duration pause = pause_after(*state_.settings.cooldown, host.drops++, part);
      host.back_at = now_ + pause;
      until = fmt::format(" for {} s", seconds_of(pause));
    }
    actions_.push_back(
        Say{fmt::format("no more workers are started on {}{}: {}", host.now.name, until, why)});
  }

  void note_change(int slots_before, const HostSlots& found) {
    if (found.slots != slots_before)
      explain("{} has {} slots, it had {}", found.name, found.slots, slots_before);
  }

  Host* find(int index) {
    const auto found = std::ranges::find_if(
        state_.hosts, [index](const Host& host) { return host.now.host == index; });
    return found == state_.hosts.end() ? nullptr : &*found;
  }
  const Host* find(int index) const { return const_cast<Making*>(this)->find(index); }

  bool has_slot(const WorkerId& worker) const {
    const Host* const host = find(worker.host);
    return host != nullptr && worker.slot < host->now.slots;
  }
  size_t placed() const {
    return static_cast<size_t>(std::ranges::count_if(
        state_.workers, [this](const auto& entry) { return has_slot(entry.first); }));
  }
  size_t count(Standing standing) const {
    return static_cast<size_t>(std::ranges::count_if(
        state_.workers, [standing](const auto& entry) { return entry.second == standing; }));
  }
  size_t members() const { return count(Standing::running) + count(Standing::asking); }

  std::string name_of(const WorkerId& worker) const {
    const Host* const host = find(worker.host);
    const std::string where =
        fmt::format("slot {} of {}", worker.slot, host == nullptr ? "a host" : host->now.name);
    if (const auto rank = state_.assignment.rank_of(worker))
      return fmt::format("rank {} in {}", *rank, where);
    return fmt::format("worker {} in {}", worker.incarnation, where);
  }

  template <class... Values>
  void explain(fmt::format_string<Values...> format, Values&&... values) {
    explanation_.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  const TimePoint now_;
  State state_;
  std::vector<Action> actions_;
  std::vector<std::string> explanation_;
};

}  // namespace

State begin(const Settings& settings, const std::vector<HostSlots>& hosts,
            const Assignment& assignment) {
  State state{
      .settings = settings, .hosts = {}, .assignment = assignment, .workers = {}, .dismissed = {}};
  for (const HostSlots& host : hosts) state.hosts.push_back({.now = host});
  for (const AssignedWorker& worker : assignment.workers()) {
    state.workers.emplace(worker.id, Standing::running);
    state.started[{worker.id.host, worker.id.slot}] = worker.id.incarnation + 1;
  }
  if (settings.heartbeat > Duration{} && assignment.size() > 1)
    state.forming = Forming{.until = {}, .stopped = StoppedSearch(TimePoint{})};
  return state;
}

Decision decide(TimePoint now, State state, const Event& event) {
  return Making(now, std::move(state)).make(event);
}

}  // namespace hvd::launcher::elastic
