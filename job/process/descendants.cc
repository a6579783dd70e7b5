#include "job/process/descendants.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <map>
#include <memory>
#include <string>

#include "job/process/small_file.h"

namespace hvd::job {
namespace {

/// Between two rounds of killing, for the kernel to end what was killed.
constexpr useconds_t kRoundMicroseconds = 1000;

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return result;
  while (const dirent* entry = readdir(folder.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    ProcessStat stat;
    if (!parse_stat(read_small_file(std::string("/proc/") + entry->d_name + "/stat"), stat))
      continue;
    if (stat.state != 'Z' && stat.state != 'X') result.emplace(stat.parent, stat.pid);
  }
  return result;
}

}  // namespace

bool parse_stat(std::string_view line, ProcessStat& stat) {
  // pid (name) state parent ...; the name may hold anything, blanks and parentheses too.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= line.size()) return false;
  const auto pid = std::from_chars(line.data(), line.data() + line.size(), stat.pid);
  stat.state = line[name_end + 2];
  const auto parent =
      std::from_chars(line.data() + name_end + 4, line.data() + line.size(), stat.parent);
  return pid.ec == std::errc{} && parent.ec == std::errc{};
}

std::vector<pid_t> descendants() {
  const auto children = children_by_parent();
  std::vector<pid_t> found{getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void signal_descendants(int signal) {
  for (const pid_t pid : descendants()) kill(pid, signal);
}

bool reap(const std::function<void(pid_t, int)>& reaped) {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      reaped(pid, status);
    } else if (pid == 0) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
}

void kill_descendants(const std::function<void(pid_t, int)>& reaped) {
  while (reap(reaped)) {
    signal_descendants(SIGKILL);
    usleep(kRoundMicroseconds);
  }
}

}  // namespace hvd::job
