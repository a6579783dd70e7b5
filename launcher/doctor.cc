#include "launcher/doctor.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "launcher/options/environment.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {
namespace {

/// Any failure to load the package is reported with its remedy.
constexpr const char* kBegin = R"(
import sys
try:
    from horovod.doctor.command import main
except Exception as error:
    print(f"horovodrun: {sys.executable} cannot load the package horovod: "
          f"{type(error).__name__}: {error}\n"
          "    every rank would fail in the same way\n"
          f"    {sys.executable} -m pip install --no-cache-dir --force-reinstall horovod",
          file=sys.stderr)
    sys.exit(1)
sys.exit(main())
)";

}  // namespace

std::vector<std::string> doctor_command(const DoctorPlan& plan, const Options& options) {
  std::vector<std::string> words{plan.python, "-c", kBegin, "--program", plan.program};
  const auto add = [&](const char* flag, const std::string& value) {
    words.push_back(fmt::format("{}={}", flag, value));
  };
  for (const DoctorHost& host : plan.hosts) {
    add("--host", fmt::format("{}={}", host.name, host.slots));
    if (host.local) add("--here", host.name);
  }
  if (options.ssh_port) add("--ssh-port", fmt::format("{}", *options.ssh_port));
  if (options.ssh_identity) add("--ssh-identity-file", *options.ssh_identity);
  if (!options.interfaces.empty())
    add("--network-interfaces", fmt::format("{}", fmt::join(options.interfaces, ",")));
  if (options.verbose) words.emplace_back("--verbose");
  return words;
}

int run_doctor(const DoctorPlan& plan, const Options& options) {
  if (plan.python.empty())
    fail(Code::invalid_argument,
         fmt::format("there is no python3 beside {} or in PATH; install it: apt-get "
                     "install python3",
                     plan.program));
  const std::vector<std::string> words = doctor_command(plan, options);
  const std::vector<std::string> variables = assignments(plan.environment);
  execve(plan.python.c_str(), pointers(words).data(), pointers(variables).data());
  fail(Code::internal, fmt::format("{} cannot be started: {}", plan.python, errno_text(errno)));
}

}  // namespace hvd::launcher
