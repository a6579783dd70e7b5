#include "launcher/elastic_part.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "core/transport/job_number.h"
#include "launcher/driver/report.h"
#include "launcher/machine.h"
#include "launcher/options/environment.h"

namespace hvd::launcher {

std::optional<elastic::State> first_state(const Job& job) {
  if (!job.elastic) return std::nullopt;
  std::vector<elastic::HostSlots> hosts;
  for (const JobHost& host : job.hosts)
    hosts.push_back({static_cast<int>(hosts.size()), host.name, host.missing ? 0 : host.slots});
  return elastic::begin(*job.elastic, hosts, job.assignment);
}

ElasticPart::ElasticPart(Job& job, StoreServer& store, Links& links, Output& output,
                         LaunchEvents& events, Address store_address,
                         const ProcessDefaults& defaults)
    : job_(job),
      store_(store),
      links_(links),
      output_(output),
      events_(events),
      store_address_(std::move(store_address)),
      desk_(store) {
  for (const JobHost& host : job_.hosts) {
    wanted_.push_back({static_cast<int>(wanted_.size()), host.name, host.slots});
    if (!host.missing) told_.push_back(wanted_.back());
  }
  for (const StartRow& row : links_.rows())
    if (row.failed()) said_.insert(not_used(row.host, row.problem));
  if (!job_.discovery) return;
  discovery_.emplace(*job_.discovery, defaults);
  events_.watch_always(discovery_->fd());
}

std::vector<Event> ElasticPart::take_requests() {
  std::vector<Event> events;
  for (const auto& [worker, version] : desk_.take_requests())
    events.emplace_back(elastic::WorkerAsks{worker, version});
  for (const WorkerId& worker : desk_.take_departures())
    events.emplace_back(elastic::WorkerLeaves{worker});
  return events;
}

std::optional<elastic::HostsFound> ElasticPart::look_for_hosts(TimePoint now) {
  if (discovery_)
    if (auto result = discovery_->step(now)) take(*std::move(result));
  const bool changed = std::exchange(changed_, false) || !events_.moved_links().empty();
  if (!changed || wanted_ == told_) return std::nullopt;
  std::vector<elastic::HostSlots> ready = ready_hosts();
  if (ready == told_) return std::nullopt;
  told_ = ready;
  return elastic::HostsFound{std::move(ready)};
}

std::optional<TimePoint> ElasticPart::deadline() const {
  if (!discovery_) return std::nullopt;
  return discovery_->deadline();
}

/// After a failed run the hosts of the one before stay.
void ElasticPart::take(Discovery::Result result) {
  if (!result.problem.empty())
    return say_once(fmt::format("{}; the hosts stay as they are", result.problem));
  changed_ = true;
  wanted_.clear();
  for (const Host& host : merged(result.hosts, job_.own))
    if (const auto index = index_of(host))
      wanted_.push_back({*index, job_.hosts[static_cast<size_t>(*index)].name, host.slots});
}

/// A host that the job does not have yet is added to it, and an agent is started there.
std::optional<int> ElasticPart::index_of(const Host& host) {
  const bool local = is_local(host.name, job_.own);
  const auto known = std::ranges::find_if(job_.hosts, [&](const JobHost& one) {
    return local ? one.local : is_same_host(one.name, host.name);
  });
  if (known != job_.hosts.end()) return static_cast<int>(known - job_.hosts.begin());
  if (!local && !job_.may_grow) {
    say_once(
        fmt::format("{} is not used: this machine has no ssh, or no address by which other "
                    "hosts could reach it",
                    host.name));
    return std::nullopt;
  }
  job_.hosts.push_back({host.name, local, host.slots});
  const int index = static_cast<int>(job_.hosts.size()) - 1;
  add_link(index);
  return index;
}

void ElasticPart::add_link(int host) {
  const size_t link = links_.add_host(static_cast<size_t>(host));
  events_.watch_link(link, links_[link].fd());
}

void ElasticPart::say_once(const std::string& line) {
  if (said_.insert(line).second) output_.say(line);
}

std::vector<elastic::HostSlots> ElasticPart::ready_hosts() {
  std::vector<elastic::HostSlots> ready;
  const std::vector<StartRow> rows = links_.rows();
  for (const elastic::HostSlots& host : wanted_) {
    const StartRow& row = rows[static_cast<size_t>(host.host)];
    if (row.step == StartStep::ready && !row.failed()) ready.push_back(host);
    if (row.failed()) say_once(not_used(host.name, row.problem));
  }
  return ready;
}

void ElasticPart::perform(const elastic::StartWorker& start) {
  output_.expect(start.worker);
  const AssignedWorker worker = without_place(start.worker);
  links_.start_workers({&worker, 1}, store_address_);
}

void ElasticPart::perform(const elastic::Begin& begin) {
  output_.assign(begin.assignment);
  desk_.forget_before(begin.assignment.generation());
  // A new port, since a rank may still listen on the former one.
  const Environment master = master_variables(job_, begin.assignment.worker(0),
                                              job_.chooses_master_port ? free_port() : 0);
  for (const AssignedWorker& worker : begin.assignment.workers()) {
    Environment variables = elastic_variables(job_.host_of(worker.id).name, worker);
    variables.insert(master.begin(), master.end());
    desk_.give_place(worker.id, variables);
  }
}

void ElasticPart::perform(const elastic::Dismiss& dismiss) {
  if (!dismiss.stop)
    return desk_.refuse(dismiss.worker, "this process leaves the job: " + dismiss.why);
  desk_.ignore(dismiss.worker);
  links_.signal(dismiss.worker, SIGTERM);
}

void ElasticPart::perform(const elastic::Reconnect& reconnect) {
  add_link(reconnect.host);
  changed_ = true;
  std::erase_if(told_, [&](const elastic::HostSlots& one) { return one.host == reconnect.host; });
}

void ElasticPart::perform(const elastic::Tell& tell) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  desk_.announce({.added = tell.added, .removed = tell.removed, .timestamp = now.count()});
}

void ElasticPart::perform(const elastic::Abandon& abandon) {
  store_.abandon_jobs_before(job_number(abandon.generation + 1, 0), abandon.why);
}

/// Members may wait for the others in `init`.
void ElasticPart::perform(const elastic::Close& close) {
  desk_.close("the job ends: " + close.why);
  store_.refuse_starts(close.why);
}

void ElasticPart::no_more_workers() {
  desk_.close("the job ends");
  discovery_.reset();
}

}  // namespace hvd::launcher
