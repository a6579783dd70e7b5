// horovodrun: reads the options, plans the job, runs it.

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/version.h"
#include "launcher/check_build.h"
#include "launcher/discovery.h"
#include "launcher/dump.h"
#include "launcher/launch.h"
#include "launcher/machine.h"
#include "launcher/options/command_line.h"
#include "launcher/options/described.h"
#include "launcher/options/environment.h"
#include "launcher/options/help.h"
#include "launcher/options/hints.h"
#include "launcher/plan.h"
#include "launcher/print.h"
#include "launcher/remote/agent.h"
#include "launcher/through/jsrun.h"
#include "launcher/through/through.h"

namespace hvd::launcher {
namespace {

constexpr int kUsage = 2;
constexpr int kNotFound = 127;  // as shells report it

void say(const std::string& line) { fmt::print(stderr, "horovodrun: {}\n", line); }

void say_all(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) say(line);
}

/// The hosts of an elastic job are known once its script has printed enough of them.
void discover(Options& options, const Machine& machine) {
  if (!options.discovery_script) return;
  const Knobs knobs = knobs_from(job_environment(machine.environment, options));
  options.discovered =
      await_hosts(plan_discovery(options, machine), options.min_num_proc.value_or(options.num_proc),
                  knobs.elastic_timeout, say);
}

int run(Options options) {
  const Machine machine = this_machine();
  discover(options, machine);
  const Job job = plan_job(std::move(options), machine);
  if (!job.problem.empty()) {
    say(job.problem);
    return job.command.program.empty() ? kNotFound : kUsage;
  }
  say_all(job.warnings);
  switch (job.starter) {
    case JobStarter::horovodrun:
      return launch(job);
    case JobStarter::mpirun:
      return launch_through_mpirun(job.options, job.listed_hosts, job.command.environment);
    case JobStarter::jsrun:
      return launch_through_jsrun(job.options, job.listed_hosts, job.command.environment);
  }
  return kUsage;
}

int examine(const Options& options) {
  const DoctorPlan plan = plan_doctor(options, this_machine());
  say_all(options.warnings);
  return run_doctor(plan, options);
}

/// Descriptors 0, 1 and 2 must be open, or a pipe would get their number. Output to a standard
/// output that was closed is lost, which is reported at the end.
void open_standard_descriptors() {
  int fd = 0;
  do {
    const bool in_place_of_output =
        fcntl(STDIN_FILENO, F_GETFD) >= 0 && fcntl(STDOUT_FILENO, F_GETFD) < 0;
    fd = open("/dev/null", in_place_of_output ? O_RDONLY : O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

/// For the modes that only print.
std::string text_of(const Options& options) {
  if (options.mode == Options::Mode::help) return help_text();
  if (options.mode == Options::Mode::version) return fmt::format("{}\n", kVersion);
  const Machine machine = this_machine();
  return check_build(machine.program, path_of(machine.environment), options.verbose);
}

/// For horovod.runner.launch.parse_args(). An invalid value is reported in the answer; a wrong flag
/// ends the program, as it would end a job.
std::string answer(const std::vector<std::string>& arguments) {
  const CommandLine line = read_command_line(arguments);
  const Options::Mode mode = line.mode();
  if (mode > Options::Mode::check_build) return answer_with("print", text_of(options_of(line)));
  if (mode == Options::Mode::run && line.last("num_proc") == nullptr &&
      !is_in_lsf(process_environment()))
    fail(Code::invalid_argument, without_number(line.command));
  try {
    return described(line, options_of(line));
  } catch (const Error& error) {
    return answer_with("error", error.what());
  }
}

/// No exception leaves this function, only an exit code.
int main_or_explain(const std::vector<std::string>& arguments) try {
  if (arguments.empty())
    fail(Code::invalid_argument,
         "no command was given; start processes like this: horovodrun -np 2 python train.py; "
         "horovodrun --help lists the flags");
  if (arguments == std::vector<std::string>{"--agent"}) return run_agent();  // not for users
  if (arguments.size() == 2 && arguments.front() == "--dump-host")  // for launchers and agents
    return run_dump_here(std::stoi(arguments.back()), Question::everything);
  if (arguments.size() == 2 && arguments.front() == "--states-of-host")  // the same
    return run_dump_here(std::stoi(arguments.back()), Question::process_states);
  if (arguments.front() == "--parse-args")
    return print(answer({arguments.begin() + 1, arguments.end()}));
  Options options = parse_options(arguments);
  switch (options.mode) {
    case Options::Mode::help:
    case Options::Mode::version:
    case Options::Mode::check_build:
      return print(text_of(options));
    case Options::Mode::doctor:
      return examine(options);
    case Options::Mode::dump:
      return run_dump(options);
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
}  // namespace hvd::launcher

int main(int count, char** arguments) {
  hvd::launcher::open_standard_descriptors();
  return hvd::launcher::main_or_explain({arguments + 1, arguments + count});
}
