#include "launcher/plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "launcher/options/environment.h"
#include "launcher/options/hints.h"
#include "launcher/options/hosts.h"
#include "launcher/through/jsrun.h"

namespace hvd::launcher {
namespace {

/// The remote shell in a job of Kubeflow's MPI operator. It runs a command in a pod.
constexpr const char* kKubexec = "/etc/mpi/kubexec.sh";
constexpr uint32_t kFirstGeneration = 0;

std::vector<Host> read_hostfile(const std::string& path, const Machine& machine) {
  return parse_hostfile(machine.read_file(path, "host file"), path);
}

std::vector<Host> listed_hosts(const Options& options, const Machine& machine) {
  if (options.discovery_script) return options.discovered;
  if (options.hosts) return parse_hosts(*options.hosts);
  if (options.hostfile) return read_hostfile(*options.hostfile, machine);
  if (auto allocation = lsf_allocation(machine.environment); !allocation.empty()) return allocation;
  const std::string operators = hostfile_of_operator(machine.environment);
  if (!operators.empty()) return read_hostfile(operators, machine);
  return {{"localhost", options.num_proc}};
}

/// Without -np, all slots of an LSF allocation are used.
int processes(const Options& options, const Machine& machine) {
  if (options.num_proc > 0) return options.num_proc;
  int slots = 0;
  if (is_in_lsf(machine.environment))
    for (const Host& host : listed_hosts(options, machine)) slots += host.slots;
  if (slots == 0) fail(Code::invalid_argument, without_number(options.command));
  return slots;
}

int slots_of(const std::vector<Host>& hosts) {
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return static_cast<int>(std::min<int64_t>(slots, std::numeric_limits<int>::max()));
}

HostNames own_names(const std::vector<Host>& listed, const Machine& machine) {
  HostNames names{.name = machine.name, .addresses = {}};
  const bool elsewhere =
      std::ranges::any_of(listed, [](const Host& host) { return host.name != "localhost"; });
  if (elsewhere)
    for (const InterfaceAddress& one : machine.addresses()) names.addresses.push_back(one.host);
  return names;
}

void plan_workers(Job& job, const std::vector<Host>& listed, const Machine& machine) {
  job.own = own_names(listed, machine);
  const HostNames& own = job.own;
  const std::vector<Host> all = merged(listed, own);
  int first = job.options.num_proc;
  if (job.options.discovery_script) first = std::min(first, slots_of(all));
  const std::vector<Host> used = filled(all, first);
  for (const Host& host : job.options.is_elastic() ? all : used)
    job.hosts.push_back({host.name, is_local(host.name, own), host.slots});
  job.assignment = assign_ranks(first_workers(used), kFirstGeneration);
}

/// Without --max-np, an elastic job has the processes that -np names, or uses all slots that
/// appear.
elastic::Settings elastic_settings(const Options& options, const Knobs& knobs) {
  elastic::Settings settings;
  settings.min = options.min_num_proc.value_or(options.num_proc);
  settings.discovers = options.discovery_script.has_value();
  settings.target = options.max_num_proc.value_or(
      settings.discovers ? std::numeric_limits<int>::max() : options.num_proc);
  settings.patience = knobs.elastic_timeout;
  settings.survivor = knobs.survivor_timeout;
  settings.heartbeat = knobs.heartbeat;
  settings.start = knobs.start_timeout;
  settings.state_folder = knobs.state_dir;
  settings.reset_limit = options.reset_limit;
  if (const auto& chaos = options.chaos) {
    settings.kill_every = chaos->kill_every;
    settings.seed = chaos->seed;
  }
  if (const auto& range = options.cooldown)
    settings.cooldown = {std::chrono::seconds(range->first), std::chrono::seconds(range->second)};
  return settings;
}

/// Whether other hosts can be reached, which may be discovered later.
bool can_grow(const Job& job, const Machine& machine) {
  const auto is_used = [&](const InterfaceAddress& one) {
    return job.options.interfaces.empty()
               ? !one.loopback
               : std::ranges::count(job.options.interfaces, one.interface_name) != 0;
  };
  return std::ranges::any_of(machine.addresses(), is_used) && !machine.find_program("ssh").empty();
}

void plan_growth(Job& job, const Machine& machine) {
  job.discovery = plan_discovery(job.options, machine);
  job.may_grow = can_grow(job, machine);
  job.own.addresses.clear();
  for (const InterfaceAddress& one : machine.addresses()) job.own.addresses.push_back(one.host);
}

void plan_elastic(Job& job, const Knobs& knobs, const Machine& machine) {
  if (!job.options.is_elastic()) {
    if (job.options.chaos)
      fail(Code::invalid_argument,
           "--chaos kills ranks of elastic jobs only, and this job would end with its first lost "
           "rank: add --min-np or --host-discovery-script");
    return;
  }
  if (job.starter != JobStarter::horovodrun)
    fail(
        Code::invalid_argument,
        "only horovodrun's own launcher runs elastic jobs, in which mpirun and jsrun would end all "
        "ranks with the first lost one: leave out --mpi or --jsrun");
  job.elastic = elastic_settings(job.options, knobs);
  if (job.options.discovery_script) plan_growth(job, machine);
  job.command.environment.insert_or_assign("HOROVOD_ELASTIC", "1");
}

/// Returns warnings about flags that only elastic jobs use.
std::vector<std::string> unused_elastic_options(const Options& options) {
  std::vector<std::string> lines;
  const auto warn = [&](bool given, const char* flag) {
    if (given && !options.is_elastic())
      lines.push_back(
          fmt::format("{} has no effect without --min-np or --host-discovery-script", flag));
  };
  warn(options.max_num_proc.has_value(), "--max-np");
  warn(options.reset_limit.has_value(), "--reset-limit");
  warn(options.cooldown.has_value(), "--blacklist-cooldown-range");
  if (options.slots_per_host && !options.discovery_script)
    lines.emplace_back("--slots-per-host has no effect without --host-discovery-script");
  return lines;
}

/// Hosts may have different interface names. With several hosts, one of the named interfaces must
/// exist here.
void check_interfaces(const Options& options, bool several_hosts, const Machine& machine) {
  size_t missing = 0;
  for (const std::string& name : options.interfaces) {
    if (machine.has_interface(name)) continue;
    if (++missing == options.interfaces.size() || !several_hosts)
      fail(Code::invalid_argument, fmt::format("network interface '{}' does not exist here", name));
  }
}

/// Returns the addresses at which other hosts may reach this machine.
std::vector<std::string> own_addresses(const Options& options, const Machine& machine) {
  std::vector<std::string> addresses;
  const auto& allowed = options.interfaces;
  for (const InterfaceAddress& one : machine.addresses())
    if (allowed.empty() ? !one.loopback
                        : std::ranges::find(allowed, one.interface_name) != allowed.end())
      addresses.push_back(one.host);
  if (addresses.empty())
    fail(Code::invalid_argument,
         "this machine has no address by which other hosts could reach it: no interface but "
         "loopback is up, or --network-interfaces excludes all that are");
  return addresses;
}

JobStarter starter_of(const Options& options, const Knobs& knobs) {
  if (options.jsrun) return JobStarter::jsrun;
  if (knobs.controller == ControllerChoice::mpi) return JobStarter::mpirun;
  if (knobs.cpu_operations == CpuOperationsChoice::mpi)
    fail(Code::invalid_argument,
         "HOROVOD_CPU_OPERATIONS=mpi needs ranks started by mpirun: add --mpi, or unset the "
         "variable");
  return JobStarter::horovodrun;
}

/// Returns warnings about options that horovodrun's own ranks do not use.
std::vector<std::string> unused_options(const Options& options, const Environment& environment) {
  std::vector<std::string> lines = tell_of_unused(environment);
  if (!options.mpi_args.empty())
    lines.push_back("--mpi-args has no effect without --mpi or --jsrun");
  if (!parse_wish(options.binding_args))
    lines.push_back(
        fmt::format("--binding-args '{}' has no effect: without --mpi or --jsrun, only 'none' and "
                    "'cores' are allowed",
                    fmt::join(options.binding_args, " ")));
  return lines;
}

SshOptions ssh_of(const Job& job, const Machine& machine) {
  SshOptions ssh;
  ssh.port = job.options.ssh_port;
  ssh.identity = job.options.ssh_identity;
  ssh.agent = machine.program;
  // The connect timeout is shorter than the start timeout, so an unreachable host is reported in
  // time.
  ssh.connect_timeout_seconds =
      static_cast<int>(std::clamp<int64_t>(job.start_timeout.count() / 2, 1, 10));
  const auto agent = machine.environment.find("OMPI_MCA_plm_rsh_agent");
  if (agent != machine.environment.end() && agent->second == kKubexec) {
    ssh.kubexec = kKubexec;
    return ssh;
  }
  ssh.program = machine.find_program("ssh");
  if (ssh.program.empty())
    fail(Code::invalid_argument,
         "ssh is needed to reach other hosts, but was not found in PATH: apt-get install "
         "openssh-client");
  return ssh;
}

void plan_other_hosts(Job& job, const Machine& machine) {
  job.folder = machine.folder;
  job.addresses = own_addresses(job.options, machine);
  job.ssh = ssh_of(job, machine);
  if (!job.ssh.kubexec.empty()) job.fan_out = job.hosts.size();  // the pods have no kubectl
}

/// Another launcher gets the host names that the user wrote. Its ranks reach the process that
/// called horovod.run at the addresses in their environment.
void plan_other_launcher(Job& job, const std::vector<Host>& listed, const Machine& machine) {
  if (job.options.caller && job.starter == JobStarter::jsrun)
    fail(Code::invalid_argument,
         "horovod.run does not support jsrun: leave out --jsrun, or set use_mpi");
  job.listed_hosts = merged(listed, {});
  if (!job.options.caller_key) return;
  job.command.environment.insert_or_assign(
      "HOROVOD_CALLER_HOSTS",
      job.is_local() ? kLoopback
                     : fmt::format("{}", fmt::join(own_addresses(job.options, machine), ",")));
}

/// Whether the variables of torch.distributed are those of a job in which horovodrun was started.
bool is_in_a_rank(const Environment& environment) {
  return environment.contains("HOROVOD_RANK") || environment.contains("TORCHELASTIC_RUN_ID");
}

/// By these variables the ranks of a torch.distributed script find rank 0. The user's values win.
void name_master(Job& job, const Machine& machine) {
  Environment& environment = job.command.environment;
  const bool is_outer = is_in_a_rank(machine.environment);
  std::erase_if(environment, [&](const auto& variable) {
    const auto& [name, value] = variable;
    return name.starts_with("TORCHELASTIC_") ||
           ((name == "MASTER_ADDR" || name == "MASTER_PORT") && (is_outer || value.empty()));
  });
  job.own_name = machine.name;
  job.chooses_master_address = !environment.contains("MASTER_ADDR");
  job.chooses_master_port = !environment.contains("MASTER_PORT");
  const uint16_t port = job.chooses_master_port ? machine.free_port() : uint16_t{0};
  environment.merge(master_variables(job, job.assignment.worker(0), port));
}

void take_knobs(Job& job, const Knobs& knobs) {
  job.grace = knobs.grace;
  job.heartbeat = knobs.heartbeat;
  job.start_timeout = knobs.start_timeout;
  job.fan_out = static_cast<size_t>(knobs.agent_fan_out);
  job.starter = starter_of(job.options, knobs);
}

void add_warnings(Job& job) {
  job.warnings = job.options.warnings;
  for (std::string& line : unused_elastic_options(job.options))
    job.warnings.push_back(std::move(line));
  std::vector<std::string> more = tell_of_later(job.command.environment);
  if (job.starter == JobStarter::horovodrun)
    for (std::string& line : unused_options(job.options, job.command.environment))
      more.push_back(std::move(line));
  job.warnings.insert(job.warnings.end(), more.begin(), more.end());
}

}  // namespace

Job plan_job(Options options, const Machine& machine) {
  Job job;
  options.num_proc = processes(options, machine);
  const std::vector<Host> listed = listed_hosts(options, machine);
  job.options = std::move(options);
  Environment environment = job_environment(machine.environment, job.options);
  FoundCommand found = machine.find_command(job.options.command, environment);
  job.command = {std::move(found.program), job.options.command, std::move(environment)};
  job.problem = std::move(found.problem);
  if (!job.problem.empty()) return job;
  plan_workers(job, listed, machine);
  check_interfaces(job.options, !job.is_local(), machine);
  const Knobs knobs = knobs_from(job.command.environment);
  take_knobs(job, knobs);
  plan_elastic(job, knobs, machine);
  job.binding = parse_wish(job.options.binding_args).value_or(BindingWish::sensible);
  add_warnings(job);
  if (job.starter != JobStarter::horovodrun) {
    plan_other_launcher(job, listed, machine);
    return job;
  }
  name_master(job, machine);
  if (!job.is_local()) plan_other_hosts(job, machine);
  return job;
}

DiscoveryPlan plan_discovery(const Options& options, const Machine& machine) {
  const std::string& script = options.discovery_script.value();
  DiscoveryPlan plan{.script = script, .program = machine.find_program(script)};
  if (plan.program.empty())
    fail(Code::invalid_argument,
         fmt::format(
             "--host-discovery-script {}: not found in PATH; write ./{} for a program in the "
             "working folder",
             script, script));
  plan.slots_per_host = options.slots_per_host.value_or(1);
  plan.environment = assignments(machine.environment);
  return plan;
}

/// The doctor runs in the interpreter that would run the user's script.
DoctorPlan plan_doctor(const Options& options, const Machine& machine) {
  const std::vector<Host> listed = listed_hosts(options, machine);
  const HostNames own = own_names(listed, machine);
  const std::vector<Host> hosts = merged(listed, own);
  check_interfaces(options, hosts.size() > 1, machine);
  DoctorPlan plan{.program = machine.program,
                  .environment = job_environment(machine.environment, options)};
  plan.python = machine.find_python(path_of(plan.environment));
  for (const Host& host : hosts)
    plan.hosts.push_back({host.name, host.slots, is_local(host.name, own)});
  return plan;
}

}  // namespace hvd::launcher
