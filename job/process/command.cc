#include "job/process/command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "job/process/spawn.h"

namespace hvd::job {

std::string path_of(const Environment& environment) {
  const auto found = environment.find("PATH");
  return found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
}

FoundCommand find_command(const std::vector<std::string>& command, const Environment& environment) {
  FoundCommand found{.program = find_program(command[0], path_of(environment)), .problem = {}};
  if (found.program.empty()) {
    found.problem = fmt::format(
        "the program '{}' was not found{}", command[0],
        command[0].find('/') == std::string::npos ? " in PATH" : ", or it may not be executed");
    return found;
  }
  // `python train.py` with a train.py that is not there would fail on every rank; say it once.
  if (command.size() < 2) return found;
  const bool python = std::filesystem::path(command[0]).filename().string().starts_with("python");
  const std::string& script = command[1];
  if (python && script.ends_with(".py") && script[0] != '-' && access(script.c_str(), F_OK) != 0)
    found.problem = fmt::format("the script '{}' does not exist", script);
  return found;
}

std::string find_python(const std::string& program, const std::string& path) {
  const std::string beside = (std::filesystem::path(program).parent_path() / "python3").string();
  const std::string found = find_program(beside, path);
  return found.empty() ? find_program("python3", path) : found;
}

}  // namespace hvd::job
