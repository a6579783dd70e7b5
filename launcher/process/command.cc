#include "launcher/process/command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/options/hints.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {
namespace {

/// Limit for the first line of a script; the kernel reads no more of it.
constexpr size_t kFirstLineBytes = 256;

bool is_file(const std::string& path) {
  std::error_code problem;
  return std::filesystem::is_regular_file(path, problem);
}

/// Returns the program that the first line of a script names after "#!"; empty if there is none.
std::string interpreter_of(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  char mark[2] = {};
  if (!file.read(mark, sizeof mark) || mark[0] != '#' || mark[1] != '!') return "";
  std::string line(kFirstLineBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  return line.substr(0, line.find('\n'));
}

/// Returns why an existing, executable script would not run; empty if it would.
std::string problem_of_script(const std::string& program) {
  std::string line = interpreter_of(program);
  if (line.ends_with('\r'))
    return fmt::format(
        "the script '{}' has Windows line endings, so the program in its first line is not found; "
        "sed -i 's/\\r$//' {} converts them",
        program, program);
  line.erase(0, line.find_first_not_of(" \t"));
  const std::string interpreter = line.substr(0, line.find_first_of(" \t"));
  if (interpreter.empty() || access(interpreter.c_str(), X_OK) == 0) return "";
  return fmt::format("the script '{}' needs '{}', which does not exist or is not executable",
                     program, interpreter);
}

std::string problem_of_missing(const std::string& word) {
  const std::string hint = hint_for_command(word, is_file(word));
  std::error_code none;
  if (std::filesystem::is_directory(word, none) && word.find('/') != std::string::npos)
    return fmt::format("'{}' is a folder, not a program", word);
  if (!is_file(word) || word.find('/') == std::string::npos) {
    const bool here = hint.empty() && is_file(word) && access(word.c_str(), X_OK) == 0;
    return fmt::format("the program '{}' was not found{}{}", word,
                       word.find('/') == std::string::npos ? " in PATH" : "",
                       here ? fmt::format("; did you mean './{}'?", word) : hint);
  }
  return fmt::format("'{}' is not executable{}", word,
                     hint.empty() ? fmt::format("; chmod +x {}", word) : hint);
}

/// Returns Python's first argument that is not an option; empty if there is none, or if Python gets
/// its program in another way (-m, -c, standard input).
std::string script_of(const std::vector<std::string>& command) {
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.empty() || word[0] != '-') return word;
    if (word == "-W" || word == "-X" || word == "--check-hash-based-pycs") {
      ++i;  // its value
    } else if (word.starts_with("--") || word.find_first_of("mc") != std::string::npos ||
               word == "-") {
      return "";
    }
  }
  return "";
}

/// A missing script in `python train.py` would fail on every rank; report it once.
std::string problem_of_python(const std::vector<std::string>& command) {
  if (!std::filesystem::path(command[0]).filename().string().starts_with("python")) return "";
  const std::string script = script_of(command);
  if (!script.ends_with(".py") || access(script.c_str(), F_OK) == 0) return "";
  return fmt::format("the script '{}' does not exist", script);
}

}  // namespace

std::string path_of(const Environment& environment) {
  const auto found = environment.find("PATH");
  return found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
}

FoundCommand find_command(const std::vector<std::string>& command, const Environment& environment) {
  FoundCommand found{.program = find_program(command[0], path_of(environment)), .problem = {}};
  if (found.program.empty()) {
    found.problem = problem_of_missing(command[0]);
    return found;
  }
  found.problem = problem_of_script(found.program);
  if (found.problem.empty()) found.problem = problem_of_python(command);
  return found;
}

std::string find_python(const std::string& program, const std::string& path) {
  const std::string beside = (std::filesystem::path(program).parent_path() / "python3").string();
  const std::string found = find_program(beside, path);
  return found.empty() ? find_program("python3", path) : found;
}

}  // namespace hvd::launcher
