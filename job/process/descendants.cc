#include "job/process/descendants.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "job/process/small_file.h"

namespace hvd::job {
namespace {

/// Between two rounds of killing, for the kernel to end what was killed; doubled from round to
/// round, since a look at all processes of a large machine takes as long.
constexpr useconds_t kFirstRoundMicroseconds = 1000, kLastRoundMicroseconds = 64000;

/// Takes a number off the front of `text`, behind blanks.
std::optional<pid_t> take_pid(std::string_view& text) {
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
  pid_t pid = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (end.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
  return pid;
}

std::string status_of(const std::string& process) {
  return read_small_file("/proc/" + process + "/status");
}

/// This process as /proc shows it. PID namespaces are nested, and /proc shows one of them: in each
/// from there down to its own a process has a number.
struct OwnView {
  pid_t shown = 0;   ///< our number in the namespace of /proc; 0: we are not visible there
  size_t depth = 0;  ///< namespaces between that one and ours
};

OwnView own_view() {
  std::error_code none;
  const std::string link = std::filesystem::read_symlink("/proc/self", none).string();
  std::string_view text = link;
  const auto shown = take_pid(text);
  if (!shown) return {};
  const std::vector<pid_t> pids = parse_namespace_pids(status_of("self"));
  if (pids.empty()) return {.shown = *shown == getpid() ? *shown : 0};  // before Linux 4.1
  return {.shown = *shown, .depth = pids.size() - 1};
}

/// The number that a process has in our namespace; 0: it has ended.
pid_t own_number(pid_t shown, const OwnView& view) {
  if (view.depth == 0) return shown;
  const std::vector<pid_t> pids = parse_namespace_pids(status_of(std::to_string(shown)));
  return pids.size() > view.depth ? pids[view.depth] : 0;
}

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

std::vector<pid_t> parse_namespace_pids(std::string_view status) {
  constexpr std::string_view kName = "\nNSpid:";
  const size_t begin = status.find(kName);
  if (begin == std::string_view::npos) return {};
  status.remove_prefix(begin + kName.size());
  std::vector<pid_t> pids;
  while (const auto pid = take_pid(status)) pids.push_back(*pid);
  return pids;
}

std::string why_descendants_are_hidden() {
  if (own_view().shown != 0) return "";
  struct statfs filesystem {};
  const bool mounted = statfs("/proc", &filesystem) == 0 && filesystem.f_type == PROC_SUPER_MAGIC;
  return mounted ? "/proc is that of another PID namespace" : "/proc is not mounted";
}

std::optional<std::vector<pid_t>> find_descendants() {
  const OwnView view = own_view();
  if (view.shown == 0) return std::nullopt;
  const auto children = children_by_parent();
  std::vector<pid_t> found{view.shown};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  for (pid_t& pid : found) pid = own_number(pid, view);
  std::erase(found, 0);
  return found;
}

void Descendants::add(pid_t child) {
  children_.insert(child);
  groups_.insert(child);
}

void Descendants::signal(int number) const {
  if (auto found = find_descendants()) {
    for (const pid_t child : children_)
      if (std::ranges::find(*found, child) == found->end()) found->push_back(child);
    for (const pid_t pid : *found) kill(pid, number);
    return;
  }
  for (const pid_t group : groups_)
    if (kill(-group, number) != 0 && children_.contains(group)) kill(group, number);
}

bool Descendants::reap(const Reaped& reaped) {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      children_.erase(pid);
      reaped(pid, status);
    } else if (pid == 0 || errno != EINTR) {
      forget_empty_groups();
      return pid == 0;
    }
  }
}

/// The number of a group is not used again while it has members, but it may be afterwards.
void Descendants::forget_empty_groups() {
  std::erase_if(groups_, [this](pid_t group) {
    return !children_.contains(group) && kill(-group, 0) != 0 && errno == ESRCH;
  });
}

bool Descendants::kill_all(std::chrono::milliseconds patience, const Reaped& reaped) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (useconds_t pause = kFirstRoundMicroseconds; reap(reaped);
       pause = std::min(2 * pause, kLastRoundMicroseconds)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    signal(SIGKILL);
    usleep(pause);
  }
  return true;
}

}  // namespace hvd::job
