#include "launcher/links.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "launcher/local/local_link.h"
#include "launcher/options/environment.h"
#include "launcher/remote/host_tree.h"
#include "launcher/stream/input_source.h"

namespace hvd::launcher {
namespace {

LocalPlan local_plan(const Job& job, size_t index) {
  const JobHost& host = job.hosts[index];
  LocalPlan plan;
  plan.host = static_cast<int>(index);
  plan.host_name = host.name;
  plan.store.interfaces = job.options.interfaces;
  plan.store.one_host = job.is_local();
  plan.elastic = job.elastic.has_value();
  if (may_read(STDIN_FILENO)) plan.rank_zero_input = STDIN_FILENO;
  plan.binding = binding_here(host.slots, job.binding);
  if (is_refused(plan.binding, job.binding))
    fail(Code::invalid_argument,
         fmt::format("{}: {}; {}", host.name, plan.binding.why_not, kNotBoundAdvice));
  return plan;
}

AgentSetup setup_of_all(const Job& job, const JobKey& key, uint16_t store_port) {
  AgentSetup setup;
  setup.key = key;
  setup.folder = job.folder;
  setup.command = job.command.arguments;
  setup.environment = job.command.environment;
  setup.interfaces = job.options.interfaces;
  setup.store_addresses = job.addresses;
  setup.store_port = store_port;
  setup.start_timeout_seconds = static_cast<uint32_t>(job.start_timeout.count());
  setup.binding = job.binding;
  setup.elastic = job.elastic.has_value();
  return setup;
}

}  // namespace

Links::Links(const Job& job, const JobKey& key, uint16_t store_port,
             const ProcessDefaults& defaults)
    : job_(job), key_(key), defaults_(defaults) {
  for (size_t index = 0; index < job.hosts.size(); ++index) {
    if (!job.hosts[index].local) continue;
    add_local_link(index);
  }
  if (job.is_local()) return;
  setup_ = setup_of_all(job, key, store_port);
  add_remote_links();
}

void Links::add_local_link(size_t host) {
  links_.push_back(
      std::make_unique<LocalLink>(job_.command, local_plan(job_, host), key_, defaults_));
  first_hosts_.push_back(host);
}

/// `all`: how many hosts share the room for output.
RemotePlan Links::remote_plan(std::vector<RemoteHost> hosts, size_t all) const {
  return {.hosts = std::move(hosts),
          .fan_out = job_.fan_out,
          .output_window = std::max(kLeastOutputWindowBytes, kOutputWindowBytes / all),
          .ssh = job_.ssh};
}

void Links::add_remote_links() {
  std::vector<RemoteHost> hosts;
  for (size_t index = 0; index < job_.hosts.size(); ++index)
    if (const JobHost& host = job_.hosts[index]; !host.local)
      hosts.push_back({static_cast<uint32_t>(index), host.name, host.slots});
  const Environment own = process_environment();
  for (const Branch& branch : branches(0, hosts.size(), job_.fan_out)) {
    const auto first = hosts.begin() + static_cast<std::ptrdiff_t>(branch.first);
    RemotePlan plan =
        remote_plan({first, first + static_cast<std::ptrdiff_t>(branch.count)}, hosts.size());
    links_.push_back(std::make_unique<RemoteLink>(std::move(plan), setup_, own, defaults_));
    first_hosts_.push_back(first->index);
  }
}

size_t Links::add_host(size_t host) {
  const JobHost& added = job_.hosts[host];
  if (added.local) {
    add_local_link(host);
  } else {
    RemotePlan plan =
        remote_plan({{static_cast<uint32_t>(host), added.name, added.slots}}, job_.hosts.size());
    links_.push_back(
        std::make_unique<RemoteLink>(std::move(plan), setup_, process_environment(), defaults_));
    first_hosts_.push_back(host);
  }
  return links_.size() - 1;
}

HostLink& Links::rank_zero(const Assignment& first) {
  const auto host = static_cast<size_t>(first.worker(0).host);
  const auto found = std::ranges::find(first_hosts_, host);
  HVD_ASSERT(found != first_hosts_.end());
  return *links_[static_cast<size_t>(found - first_hosts_.begin())];
}

std::vector<StartRow> Links::rows() const {
  std::vector<StartRow> result(job_.hosts.size());
  for (const auto& link : links_) link->tell_rows(result);
  return result;
}

bool Links::settled() const {
  return std::ranges::all_of(links_, [](const auto& link) { return link->settled(); });
}

void Links::start_workers(std::span<const AssignedWorker> workers, const Address& store) {
  for (const auto& link : links_) link->start_workers(workers, store);
}

void Links::no_more_workers() {
  for (const auto& link : links_) link->no_more_workers();
}

void Links::signal(const WorkerId& worker, int signal) {
  for (const auto& link : links_) link->signal(worker, signal);
}

void Links::signal_all(int signal) {
  for (const auto& link : links_) link->signal_all(signal);
}

std::set<int> Links::ask_for_dumps(Question question) {
  std::set<int> hosts;
  for (const auto& link : links_) link->ask_for_dumps(question, hosts);
  return hosts;
}

void Links::pause_output(bool paused) {
  for (const auto& link : links_) link->pause_output(paused);
}

}  // namespace hvd::launcher
