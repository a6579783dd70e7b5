#include "launcher/check_build.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "core/base/assert.h"
#include "core/base/version.h"
#include "launcher/process/command.h"

namespace hvd::launcher {
namespace {

/// Prints one line per framework: its name, and "yes" or why not. find_spec imports none of them.
constexpr const char* kQuestion = R"(
import importlib.util
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
has_libraries = lambda framework: True
try:
    from horovod.common.util import extension_available as has_libraries, mpi_built
    print("mpi yes" if mpi_built(verbose=True) else "so MPI cannot move tensors")
except ImportError as error:
    print("the package horovod cannot be imported:", error)
try:
    from horovod.common import _gpus
    report = _gpus.ask()
    for line in _gpus.lines(report):
        print("gpus:", line)
    print("nccl yes" if report.nccl_code else "so NCCL cannot move tensors")
except ImportError:
    pass
for framework in ("torch", "tensorflow", "mxnet"):
    if not found(framework):
        print(framework, "is not installed")
    elif not found("horovod." + framework):
        print(framework, "is installed, but horovod." + framework + " is not")
    elif not has_libraries(framework):
        print(framework, "is installed, but Horovod was built without it")
    else:
        print(framework, "yes")
)";

constexpr std::string_view kGpus = "gpus: ";  ///< begins lines about GPUs

std::string answer_of(const std::string& python) {
  // The command line holds no user text except the path, which the shell reads from the
  // environment.
  setenv("HVD_CHECK_PYTHON", python.c_str(), 1);
  setenv("HVD_CHECK_QUESTION", kQuestion, 1);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("exec \"$HVD_CHECK_PYTHON\" -c \"$HVD_CHECK_QUESTION\" 2>/dev/null", "r"), pclose);
  std::string answer;
  char text[256];
  while (pipe && std::fgets(text, sizeof(text), pipe.get()) != nullptr) answer += text;
  return answer;
}

std::string cpu_of_this_machine() {
  utsname names{};
  HVD_ASSERT(uname(&names) == 0);
  return names.machine;
}

}  // namespace

std::string check_build(const std::string& program, const std::string& path, bool verbose) {
  BuildFacts facts{.cpu = cpu_of_this_machine()};
  const std::string python = find_python(program, path);
  const std::string answer = python.empty() ? "" : answer_of(python);
  const auto says_yes = [&](const char* name) {
    return answer.find(fmt::format("{} yes\n", name)) != std::string::npos;
  };
  facts.torch = says_yes("torch");
  facts.tensorflow = says_yes("tensorflow");
  facts.mxnet = says_yes("mxnet");
  facts.mpi = says_yes("mpi");
  facts.nccl = says_yes("nccl");
  for (size_t begin = 0; begin < answer.size();) {
    const size_t end = std::min(answer.find('\n', begin), answer.size());
    const std::string line = answer.substr(begin, end - begin);
    if (line.starts_with(kGpus))
      facts.gpus += fmt::format("    {}\n", line.substr(kGpus.size()));
    else if (!line.ends_with(" yes"))
      facts.reasons += fmt::format("{} (asked {})\n", line, python);
    begin = end + 1;
  }
  if (python.empty()) facts.reasons = "no python3 was found beside horovodrun or in PATH\n";
  return check_build_text(facts, verbose);
}

std::string check_build_text(const BuildFacts& facts, bool verbose) {
  const auto mark = [](bool there) { return there ? 'X' : ' '; };
  const std::string experimental =
      facts.cpu == kTestedCpu
          ? ""
          : fmt::format("\nExperimental: tested for {} by emulation only, not on a machine.\n",
                        facts.cpu);
  return fmt::format(
      "{}Horovod v{}:\n\n"
      "Available Frameworks:\n    [{}] TensorFlow\n    [{}] PyTorch\n    [{}] MXNet\n\n"
      "Available Controllers:\n    [X] MPI\n    [X] Gloo\n\n"
      "Available Tensor Operations:\n    [{}] NCCL\n    [ ] DDL\n    [ ] CCL\n    [{}] MPI\n"
      "    [X] Gloo    \n{}{}",
      verbose ? "\n" + facts.reasons : "", kVersion, mark(facts.tensorflow), mark(facts.torch),
      mark(facts.mxnet), mark(facts.nccl), mark(facts.mpi),
      facts.gpus.empty() ? "" : "\nGPUs:\n" + facts.gpus, experimental);
}

}  // namespace hvd::launcher
