#include "core/bootstrap/ancestors.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/base/process_tree.h"

namespace hvd {
namespace {

constexpr size_t kNearest = 8;  // enough for a daemon and the shells and wrappers below it

/// Whether it belongs to this user or to root. Libraries of another user's process are not trusted:
/// this process may be root below sudo.
bool is_trusted(pid_t process) {
  const auto users = status_numbers(process, "Uid");  // real, effective, and two more
  return users.size() > 1 && (users[1] == static_cast<long>(::geteuid()) || users[1] == 0);
}

}  // namespace

std::vector<pid_t> ancestors() {
  std::vector<pid_t> found = processes_above(::getpid());
  found.resize(std::min(found.size(), kNearest));
  std::erase_if(found, [](pid_t process) { return process <= 1 || !is_trusted(process); });
  return found;
}

std::string program_of(pid_t process) {
  std::error_code none;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), none).string();
}

}  // namespace hvd
