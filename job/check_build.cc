#include "job/check_build.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "core/capi/version.h"
#include "job/process/command.h"

namespace hvd::job {
namespace {

/// Prints a line a framework: its name, and "yes" or why not. find_spec imports none of them.
constexpr const char* kQuestion = R"(
import importlib.util
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
for framework in ("torch", "tensorflow", "mxnet"):
    if not found(framework):
        print(framework, "is not installed")
    elif not found("horovod." + framework):
        print(framework, "is installed, but horovod." + framework + " is not")
    else:
        print(framework, "yes")
try:
    from horovod.common.util import mpi_built
    print("mpi yes" if mpi_built(verbose=True) else "so MPI cannot move tensors")
except ImportError as error:
    print("the package horovod cannot be imported:", error)
)";

std::string answer_of(const std::string& python) {
  // No user text is in this line but the path, which the shell takes from the environment.
  setenv("HVD_CHECK_PYTHON", python.c_str(), 1);
  setenv("HVD_CHECK_QUESTION", kQuestion, 1);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("exec \"$HVD_CHECK_PYTHON\" -c \"$HVD_CHECK_QUESTION\" 2>/dev/null", "r"), pclose);
  std::string answer;
  char text[256];
  while (pipe && std::fgets(text, sizeof(text), pipe.get()) != nullptr) answer += text;
  return answer;
}

}  // namespace

std::string check_build(const std::string& program, const std::string& path, bool verbose) {
  BuildFacts facts;
  const std::string python = find_python(program, path);
  const std::string answer = python.empty() ? "" : answer_of(python);
  const auto says_yes = [&](const char* name) {
    return answer.find(fmt::format("{} yes\n", name)) != std::string::npos;
  };
  facts.torch = says_yes("torch");
  facts.tensorflow = says_yes("tensorflow");
  facts.mxnet = says_yes("mxnet");
  facts.mpi = says_yes("mpi");
  for (size_t begin = 0; begin < answer.size();) {
    const size_t end = std::min(answer.find('\n', begin), answer.size());
    const std::string line = answer.substr(begin, end - begin);
    if (!line.ends_with(" yes")) facts.reasons += fmt::format("{} (asked {})\n", line, python);
    begin = end + 1;
  }
  if (python.empty()) facts.reasons = "no python3 was found beside horovodrun or in PATH\n";
  return check_build_text(facts, verbose);
}

std::string check_build_text(const BuildFacts& facts, bool verbose) {
  const auto mark = [](bool there) { return there ? 'X' : ' '; };
  return fmt::format(
      "{}Horovod v{}:\n\n"
      "Available Frameworks:\n    [{}] TensorFlow\n    [{}] PyTorch\n    [{}] MXNet\n\n"
      "Available Controllers:\n    [X] MPI\n    [X] Gloo\n\n"
      "Available Tensor Operations:\n    [ ] NCCL\n    [ ] DDL\n    [ ] CCL\n    [{}] MPI\n"
      "    [X] Gloo    \n",
      verbose ? "\n" + facts.reasons : "", kVersion, mark(facts.tensorflow), mark(facts.torch),
      mark(facts.mxnet), mark(facts.mpi));
}

}  // namespace hvd::job
