#include "core/group/bootstrap/ancestors.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hvd {
namespace {

constexpr size_t kMaxGenerations = 8;  // a daemon, and shells and wrappers below it

/// 0 when there is none, or it may not be looked at.
pid_t parent_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return static_cast<pid_t>(std::stol(line.substr(5)));
  }
  return 0;
}

}  // namespace

std::vector<pid_t> ancestors() {
  std::vector<pid_t> found;
  for (pid_t process = ::getppid(); process > 1 && found.size() < kMaxGenerations;
       process = parent_of(process))
    found.push_back(process);
  return found;
}

std::string program_of(pid_t process) {
  std::error_code none;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), none).string();
}

}  // namespace hvd
