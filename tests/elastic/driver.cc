// The decisions of the elastic launcher as functions of C, for simulations in Python: events and
// actions are lines of text. A worker is `<host>/<slot>/<incarnation>`, times are in milliseconds.
#include <fmt/core.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "launcher/elastic/elastic.h"

namespace hvd::launcher::elastic {
namespace {

using std::chrono::milliseconds;

TimePoint time_of(int64_t ms) { return TimePoint{} + milliseconds(ms); }

WorkerId worker_of(std::istream& in) {
  std::string text;
  in >> text;
  return worker_from(text).value();
}

/// `<host> <name> <slots>`, up to the end.
std::vector<HostSlots> hosts_of(std::istream& in) {
  std::vector<HostSlots> hosts;
  for (HostSlots host; in >> host.host >> host.name >> host.slots;) hosts.push_back(host);
  return hosts;
}

Event event_of(const std::string& line) {
  std::istringstream in(line);
  std::string kind;
  in >> kind;
  if (kind == "ended" || kind == "finished")
    return WorkerEnded{.worker = worker_of(in), .well = kind == "finished"};
  if (kind == "asks") {
    WorkerAsks asks{.worker = worker_of(in)};
    in >> asks.version;
    return asks;
  }
  if (kind == "found") return HostsFound{hosts_of(in)};
  if (kind == "gone") {
    HostGone gone;
    in >> gone.host;
    return gone;
  }
  if (kind == "silent") {
    const WorkerId by = worker_of(in);
    return WorkerSilent{.by = by, .worker = worker_of(in), .why = "it is silent"};
  }
  if (kind == "leaves") return WorkerLeaves{worker_of(in)};
  if (kind == "stopped") {
    WorkersStopped stopped;
    for (std::string id; in >> id;) stopped.workers.push_back(worker_from(id).value());
    return stopped;
  }
  return TimePassed{};
}

struct Written {
  std::string operator()(const StartWorker& action) const {
    return "start " + to_text(action.worker);
  }
  std::string operator()(const Begin& action) const {
    std::string line = fmt::format("begin {}", action.assignment.generation());
    for (const AssignedWorker& worker : action.assignment.workers())
      line += " " + to_text(worker.id);
    return line;
  }
  std::string operator()(const Dismiss& action) const {
    return fmt::format("dismiss {} {}", to_text(action.worker), action.stop ? "stop" : "leave");
  }
  std::string operator()(const Tell& action) const {
    return fmt::format("tell {:d} {:d}", action.added, action.removed);
  }
  std::string operator()(const Abandon& action) const {
    return fmt::format("abandon {}", action.generation);
  }
  std::string operator()(const Reconnect& action) const {
    return fmt::format("reconnect {}", action.host);
  }
  std::string operator()(const Kill& action) const { return "kill " + to_text(action.worker); }
  std::string operator()(const Say& action) const { return "say " + action.line; }
  std::string operator()(const ExplainWait&) const { return "explain"; }
  std::string operator()(const LookForStopped& action) const {
    return action.only_in_init ? "look init" : "look";
  }
  std::string operator()(const Close&) const { return "close"; }
  std::string operator()(const End& action) const { return "end " + action.why; }
};

struct Job {
  State state;
  std::string answer;
};

/// As elastic_begin() says.
Settings settings_of(std::istream& in) {
  Settings settings;
  int64_t patience = 0, survivor = 0, heartbeat = 0, cooldown = 0, kill_every = 0;
  int reset_limit = 0;
  in >> settings.min >> settings.target >> settings.seed >> patience >> survivor >> heartbeat >>
      cooldown >> kill_every >> reset_limit;
  settings.patience = milliseconds(patience);
  settings.survivor = milliseconds(survivor);
  settings.heartbeat = milliseconds(heartbeat);
  settings.discovers = true;
  const auto seconds = std::chrono::seconds(cooldown);
  if (cooldown > 0) settings.cooldown = Cooldown{seconds, 6 * seconds};
  if (kill_every > 0) settings.kill_every = milliseconds(kill_every);
  if (reset_limit >= 0) settings.reset_limit = reset_limit;
  return settings;
}

Job* begin_job(const std::string& text) {
  std::istringstream in(text);
  const Settings settings = settings_of(in);
  size_t workers = 0;
  in >> workers;
  std::vector<WorkerId> first;
  while (first.size() < workers) first.push_back(worker_of(in));
  return new Job{begin(settings, hosts_of(in), assign_ranks(first, 0)), ""};
}

}  // namespace
}  // namespace hvd::launcher::elastic

using hvd::launcher::elastic::Job;

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))

/// `<min> <target> <seed> <patience> <survivor> <heartbeat> <cooldown in s> <kill every> <reset
/// limit> <number of workers> <worker>... <host>...`, as hosts_of(). 0: no heartbeat, cooldown or
/// kills; -1: no reset limit.
HVD_EXPORT Job* elastic_begin(const char* text) { return hvd::launcher::elastic::begin_job(text); }
/// Returns the actions, one per line, valid until the next call.
HVD_EXPORT const char* elastic_decide(Job* job, int64_t now, const char* event) {
  using namespace hvd::launcher::elastic;
  Decision decision = decide(time_of(now), std::move(job->state), event_of(event));
  job->state = std::move(decision.state);
  job->answer.clear();
  for (const Action& action : decision.actions) job->answer += std::visit(Written{}, action) + "\n";
  return job->answer.c_str();
}
/// -1: there is none.
HVD_EXPORT int64_t elastic_deadline(const Job* job) {
  const auto next = hvd::launcher::elastic::deadline(job->state);
  if (!next) return -1;
  return std::chrono::ceil<std::chrono::milliseconds>(next->time_since_epoch()).count();
}
HVD_EXPORT void elastic_end(Job* job) { delete job; }
