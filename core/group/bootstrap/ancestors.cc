#include "core/group/bootstrap/ancestors.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace hvd {
namespace {

constexpr size_t kMaxGenerations = 8;  // a daemon, and shells and wrappers below it

/// The numbers of a line of /proc/<process>/status; none when it may not be looked at.
std::vector<long> status_numbers(pid_t process, const std::string& name) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream numbers(line.substr(name.size() + 1));
    return {std::istream_iterator<long>(numbers), {}};
  }
  return {};
}

/// 0 when there is none, or it may not be looked at.
pid_t parent_of(pid_t process) {
  const auto numbers = status_numbers(process, "PPid");
  return numbers.empty() ? 0 : static_cast<pid_t>(numbers.front());
}

/// Of this user, or of root. What another user's process has loaded is no advice for this one,
/// which may be root below sudo.
bool may_advise(pid_t process) {
  const auto users = status_numbers(process, "Uid");  // real, effective, and two more
  return users.size() > 1 && (users[1] == static_cast<long>(::geteuid()) || users[1] == 0);
}

}  // namespace

std::vector<pid_t> ancestors() {
  std::vector<pid_t> found;
  size_t generations = 0;
  for (pid_t process = ::getppid(); process > 1 && generations < kMaxGenerations;
       process = parent_of(process), ++generations)
    if (may_advise(process)) found.push_back(process);
  return found;
}

std::string program_of(pid_t process) {
  std::error_code none;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), none).string();
}

}  // namespace hvd
