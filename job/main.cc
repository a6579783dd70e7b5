// horovodrun: reads what the user wants, refuses what cannot be, and runs the job.

#include <fcntl.h>
#include <fmt/core.h>
#include <net/if.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/capi/version.h"
#include "job/check_build.h"
#include "job/environment.h"
#include "job/hosts.h"
#include "job/launch.h"
#include "job/options.h"
#include "job/spawn.h"

namespace hvd::job {
namespace {

constexpr int kUsage = 2;
constexpr int kNotFound = 127;  // as shells say it

void say(const std::string& line) { fmt::print(stderr, "horovodrun: {}\n", line); }

std::string machine_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Code::invalid_argument, fmt::format("host file {}: it cannot be read", path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Place> places(const Options& options) {
  std::vector<Host> hosts{{"localhost", options.num_proc}};
  if (options.hosts) hosts = parse_hosts(*options.hosts);
  if (options.hostfile) hosts = parse_hostfile(read_file(*options.hostfile));
  return place({one_local_host(hosts, machine_name())}, options.num_proc);
}

void check_interfaces(const Options& options) {
  for (const std::string& name : options.interfaces)
    if (if_nametoindex(name.c_str()) == 0)
      fail(Code::invalid_argument, fmt::format("network interface '{}' does not exist here", name));
}

/// `python train.py` with a train.py that is not there would fail on every rank; say it once.
void check_script(const std::vector<std::string>& command) {
  if (command.size() < 2) return;
  const bool python = std::filesystem::path(command[0]).filename().string().starts_with("python");
  const std::string& script = command[1];
  if (python && script.ends_with(".py") && script[0] != '-' && access(script.c_str(), F_OK) != 0)
    fail(Code::invalid_argument, fmt::format("the script '{}' does not exist", script));
}

std::string path_of(const Environment& environment) {
  const auto found = environment.find("PATH");
  return found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
}

int run(Options options) {
  Job job;
  job.places = places(options);
  check_interfaces(options);
  job.environment = job_environment(process_environment(), options);
  job.grace = knobs_from(job.environment).grace;
  for (const std::string& line : tell_of_later(job.environment)) options.warnings.push_back(line);
  job.program = find_program(options.command[0], path_of(job.environment));
  if (job.program.empty()) {
    say(fmt::format("the program '{}' was not found{}", options.command[0],
                    options.command[0].find('/') == std::string::npos
                        ? " in PATH"
                        : ", or it may not be executed"));
    return kNotFound;
  }
  check_script(options.command);
  for (const std::string& warning : options.warnings) say(warning);
  job.options = std::move(options);
  return launch(job);
}

/// Descriptors 0, 1 and 2 must be open, or a pipe would take their place.
void open_standard_descriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

std::string own_path() {
  std::error_code problem;
  return std::filesystem::read_symlink("/proc/self/exe", problem).string();
}

/// The boundary: nothing passes it but an exit code.
int main_or_explain(const std::vector<std::string>& arguments) try {
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
