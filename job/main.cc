// horovodrun: reads what the user wants, refuses what cannot be, and runs the job.

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>

#include "core/base/error.h"
#include "core/capi/version.h"
#include "core/transport/interfaces.h"
#include "job/check_build.h"
#include "job/doctor.h"
#include "job/launch.h"
#include "job/options/environment.h"
#include "job/options/hosts.h"
#include "job/options/options.h"
#include "job/options/text_file.h"
#include "job/process/caller.h"
#include "job/process/command.h"
#include "job/process/spawn.h"
#include "job/remote/agent.h"
#include "job/through/jsrun.h"
#include "job/through/through.h"

namespace hvd::job {
namespace {

constexpr int kUsage = 2;
constexpr int kNotFound = 127;  // as shells say it
/// Marks a job of Kubeflow's MPI operator: it runs a command in a pod.
constexpr const char* kKubexec = "/etc/mpi/kubexec.sh";

void say(const std::string& line) { fmt::print(stderr, "horovodrun: {}\n", line); }

std::string machine_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::vector<Host> listed_hosts(const Options& options) {
  if (options.hosts) return parse_hosts(*options.hosts);
  if (options.hostfile) return parse_hostfile(read_text_file(*options.hostfile, "host file"));
  if (auto allocation = lsf_allocation(process_environment()); !allocation.empty())
    return allocation;
  const std::string operators = hostfile_of_operator(process_environment());
  if (!operators.empty()) return parse_hostfile(read_text_file(operators, "host file"));
  return {{"localhost", options.num_proc}};
}

/// Without -np an allocation of LSF is filled.
int processes(const Options& options) {
  if (options.num_proc > 0) return options.num_proc;
  int slots = 0;
  if (is_in_lsf(process_environment()))
    for (const Host& host : listed_hosts(options)) slots += host.slots;
  if (slots == 0) fail(Code::invalid_argument, "-np is needed: the number of processes to start");
  return slots;
}

Machine this_machine(const std::vector<Host>& given) {
  Machine machine{.name = machine_name(), .addresses = {}};
  const bool elsewhere =
      std::ranges::any_of(given, [](const Host& host) { return host.name != "localhost"; });
  if (elsewhere)  // asking the kernel takes as long as starting a process
    for (const InterfaceAddress& one : interface_addresses()) machine.addresses.push_back(one.host);
  return machine;
}

std::vector<JobHost> hosts_of_job(const std::vector<Host>& given, int processes) {
  const Machine machine = this_machine(given);
  std::vector<JobHost> hosts;
  for (auto& places : by_host(place(merged(given, machine), processes))) {
    const std::string name = places.front().host;
    hosts.push_back({name, is_local(name, machine), std::move(places)});
  }
  return hosts;
}

/// Hosts may call theirs by different names: of several it is enough that each has one.
void check_interfaces(const Options& options, bool several_hosts) {
  size_t missing = 0;
  for (const std::string& name : options.interfaces) {
    if (if_nametoindex(name.c_str()) != 0) continue;
    if (++missing == options.interfaces.size() || !several_hosts)
      fail(Code::invalid_argument, fmt::format("network interface '{}' does not exist here", name));
  }
}

/// Where other hosts may reach this one.
std::vector<std::string> own_addresses(const Options& options) {
  std::vector<std::string> addresses;
  const auto& allowed = options.interfaces;
  for (const InterfaceAddress& one : interface_addresses())
    if (allowed.empty() ? !one.loopback
                        : std::ranges::find(allowed, one.interface_name) != allowed.end())
      addresses.push_back(one.host);
  if (addresses.empty())
    fail(Code::invalid_argument,
         "this machine has no address by which other hosts could reach it: no interface but "
         "loopback is up, or --network-interfaces names others");
  return addresses;
}

/// As the shell spells it, so that the path is one that other hosts may have too.
std::string working_folder(const Environment& environment) {
  std::error_code problem;
  const auto pwd = environment.find("PWD");
  if (pwd != environment.end() && pwd->second.starts_with('/') &&
      std::filesystem::equivalent(pwd->second, ".", problem))
    return pwd->second;
  return std::filesystem::current_path(problem).string();
}

/// Also where /proc does not show this process: then the path with which it was started.
std::string own_path() {
  std::error_code problem;
  const auto shown = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (!problem) return shown.string();
  const auto* started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return std::filesystem::canonical(started, problem).string();
}

/// What only a job on other hosts needs.
void prepare_for_other_hosts(Job& job) {
  const Environment own = process_environment();
  job.folder = working_folder(own);
  job.addresses = own_addresses(job.options);
  job.ssh.port = job.options.ssh_port;
  job.ssh.identity = job.options.ssh_identity;
  job.ssh.agent = own_path();
  // An unreachable host is told before the time for all is up.
  job.ssh.connect_timeout_seconds =
      static_cast<int>(std::clamp<int64_t>(job.start_timeout.count() / 2, 1, 10));
  const auto agent = own.find("OMPI_MCA_plm_rsh_agent");
  if (agent != own.end() && agent->second == kKubexec) {
    job.ssh.kubexec = kKubexec;
    job.fan_out = job.hosts.size();  // the pods themselves have no kubectl
    return;
  }
  job.ssh.program = find_program("ssh", path_of(own));
  if (job.ssh.program.empty())
    fail(Code::invalid_argument,
         "other hosts are reached by ssh, which was not found in PATH: apt-get install "
         "openssh-client");
}

/// How ranks that another launcher starts reach the process that called for them. That launcher
/// hands on no descriptor, so the key is in their environment; they take it out when they begin.
void tell_of_caller(const Options& options, bool on_this_host, Environment& environment) {
  const JobKey key = read_caller_key(*options.caller_key);
  std::string digits;
  for (const std::byte one : key.bytes) digits += fmt::format("{:02x}", std::to_integer<int>(one));
  environment.insert_or_assign("HOROVOD_CALLER_KEY", digits);
  environment.insert_or_assign(
      "HOROVOD_CALLER_HOSTS",
      on_this_host ? kLoopback : fmt::format("{}", fmt::join(own_addresses(options), ",")));
}

/// Another launcher knows the hosts under the names that it was given.
int run_through(const Options& options, const std::vector<Host>& listed, bool on_this_host,
                Environment environment) {
  if (options.caller && options.jsrun)
    fail(Code::invalid_argument,
         "horovod.run does not go through jsrun: leave out --jsrun, or set use_mpi");
  if (options.caller_key) tell_of_caller(options, on_this_host, environment);
  const std::vector<Host> hosts = merged(listed, Machine{});
  return options.jsrun ? launch_through_jsrun(options, hosts, environment)
                       : launch_through_mpirun(options, hosts, environment);
}

int run(Options options) {
  Job job;
  options.num_proc = processes(options);
  const std::vector<Host> hosts = listed_hosts(options);
  job.hosts = hosts_of_job(hosts, options.num_proc);
  check_interfaces(options, !job.is_local());
  Environment environment = job_environment(process_environment(), options);
  const Knobs knobs = knobs_from(environment);
  const bool own = !options.jsrun && knobs.controller == ControllerChoice::gloo;
  job.grace = knobs.grace;
  job.start_timeout = knobs.start_timeout;
  job.fan_out = static_cast<size_t>(knobs.agent_fan_out);
  if (own && knobs.cpu_operations == CpuOperationsChoice::mpi)
    fail(Code::invalid_argument,
         "HOROVOD_CPU_OPERATIONS=mpi needs ranks that mpirun has started: add --mpi, or leave the "
         "variable away");
  for (const std::string& line : tell_of_later(environment)) options.warnings.push_back(line);
  if (own)
    for (const std::string& line : tell_of_unused(environment)) options.warnings.push_back(line);
  if (own && !options.mpi_args.empty())
    options.warnings.push_back("--mpi-args is for --mpi and --jsrun; it has no effect here");
  const auto binding = parse_wish(options.binding_args);
  if (own && !binding)
    options.warnings.push_back(fmt::format(
        "--binding-args '{}' has no effect here: without --mpi and --jsrun it is 'none' or 'cores'",
        fmt::join(options.binding_args, " ")));
  job.binding = binding.value_or(BindingWish::sensible);
  const FoundCommand found = find_command(options.command, environment);
  if (!found.problem.empty()) {
    say(found.problem);
    return found.program.empty() ? kNotFound : kUsage;
  }
  for (const std::string& warning : options.warnings) say(warning);
  if (!own) return run_through(options, hosts, job.is_local(), environment);
  job.command = {found.program, options.command, std::move(environment)};
  job.options = std::move(options);
  if (!job.is_local()) prepare_for_other_hosts(job);
  return launch(job);
}

/// Asks Python, in whose place the user's script would run.
int examine(const Options& options) {
  const Environment environment = job_environment(process_environment(), options);
  const std::vector<Host> given = listed_hosts(options);
  const Machine machine = this_machine(given);
  const std::vector<Host> hosts = merged(given, machine);
  check_interfaces(options, hosts.size() > 1);
  DoctorPlan plan{.program = own_path()};
  plan.python = find_python(plan.program, path_of(environment));
  for (const Host& host : hosts)
    plan.hosts.push_back({host.name, host.slots, is_local(host.name, machine)});
  for (const std::string& warning : options.warnings) say(warning);
  return run_doctor(plan, options, environment);
}

/// Descriptors 0, 1 and 2 must be open, or a pipe would take their place.
void open_standard_descriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

/// The boundary: nothing passes it but an exit code.
int main_or_explain(const std::vector<std::string>& arguments) try {
  if (arguments == std::vector<std::string>{"--agent"}) return run_agent();  // not for users
  Options options = parse_options(arguments);
  switch (options.mode) {
    case Options::Mode::help:
      fmt::print("{}", options.help);
      return 0;
    case Options::Mode::version:
      fmt::print("{}\n", kVersion);
      return 0;
    case Options::Mode::check_build:
      fmt::print("{}", check_build(own_path(), path_of(process_environment()), options.verbose));
      return 0;
    case Options::Mode::doctor:
      return examine(options);
    case Options::Mode::run:
      return run(std::move(options));
  }
  return kUsage;
} catch (const Error& error) {
  say(error.what());
  return error.code() == Code::invalid_argument ? kUsage : 1;
} catch (const std::exception& error) {
  say(fmt::format("internal error: {}", error.what()));
  return 1;
}

}  // namespace
}  // namespace hvd::job

int main(int count, char** arguments) {
  hvd::job::open_standard_descriptors();
  return hvd::job::main_or_explain({arguments + 1, arguments + count});
}
