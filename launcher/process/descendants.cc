#include "launcher/process/descendants.h"

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
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "core/base/process_tree.h"
#include "launcher/process/small_file.h"

namespace hvd::launcher {
namespace {

/// Pause between two rounds of killing, in which the kernel ends the killed processes. Doubled per
/// round, since scanning all processes of a large machine takes as long.
constexpr useconds_t kFirstRoundMicroseconds = 1000, kLastRoundMicroseconds = 64000;

/// Removes a number from the front of `text`, after blanks, and returns it.
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

/// This process as /proc shows it. PID namespaces are nested, and /proc shows one of them. A
/// process has a number in each namespace from that one down to its own.
struct OwnView {
  pid_t shown = 0;   ///< our number in the namespace of /proc; 0: not visible there
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

/// Returns a process's number in our namespace; 0: it has ended.
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

/// Returns the processes nearest to the root (which may be one of them) for which `holds`: at most
/// one on each path from the root.
std::vector<pid_t> uppermost(const std::multimap<pid_t, pid_t>& children_of, pid_t root,
                             const std::function<bool(pid_t)>& holds) {
  std::vector<pid_t> found, open{root};
  while (!open.empty()) {
    const pid_t pid = open.back();
    open.pop_back();
    if (holds(pid)) {
      found.push_back(pid);
      continue;
    }
    const auto [begin, end] = children_of.equal_range(pid);
    for (auto child = begin; child != end; ++child) open.push_back(child->second);
  }
  return found;
}

/// Parses a line such as `SigCgt:\t0000000180014a07`.
uint64_t signal_mask(std::string_view status, std::string_view name) {
  const size_t begin = status.find(name);
  if (begin == std::string_view::npos) return 0;
  status.remove_prefix(begin + name.size());
  uint64_t mask = 0;
  std::from_chars(status.data(), status.data() + status.size(), mask, 16);
  return mask;
}

/// True if a process blocks what sigfillset blocks. Who takes signals from a queue usually blocks
/// only those.
bool blocks_all_signals(std::string_view status) {
  constexpr uint64_t kReserved = uint64_t{3} << 31;  // of glibc, which leaves them out
  constexpr uint64_t kNever = uint64_t{1} << (SIGKILL - 1) | uint64_t{1} << (SIGSTOP - 1);
  return (signal_mask(status, "\nSigBlk:\t") | kReserved | kNever) == ~uint64_t{0};
}

/// Pauses, for all processes that one signal is meant for together, until they are taken as they
/// are: on a busy machine a process runs again some time after it has started another.
class Pauses {
 public:
  bool operator()() {
    usleep(kMicroseconds);
    return ++count_ < kMost;
  }

 private:
  static constexpr useconds_t kMicroseconds = 1000;
  static constexpr int kMost = 200;
  int count_ = 0;
};

/// Continues stopped processes, which could not handle the signal otherwise.
void send(pid_t process_or_group, int number) {
  kill(process_or_group, number);
  if (number == SIGINT || number == SIGTERM) kill(process_or_group, SIGCONT);
}

/// A snapshot of this machine's processes, as far as /proc shows them. Empty if it does not show
/// this process.
class ProcessTree {
 public:
  ProcessTree() : view_(own_view()) {
    if (!is_visible()) return;
    children_of_ = children_by_parent();
    const auto [begin, end] = children_of_.equal_range(view_.shown);
    for (auto child = begin; child != end; ++child)
      shown_.emplace(own_number(child->second, view_), child->second);
  }

  bool is_visible() const { return view_.shown != 0; }
  pid_t own_shown() const { return view_.shown; }
  /// Returns the number in /proc of a child of this process; 0 if it is not there.
  pid_t shown(pid_t child) const {
    const auto found = shown_.find(child);
    return found == shown_.end() ? 0 : found->second;
  }
  /// Returns the processes below one, parents first, by their numbers in this PID namespace.
  std::vector<pid_t> below(pid_t shown) const {
    std::vector<pid_t> found{shown};
    for (size_t i = 0; i < found.size(); ++i) {
      const auto [begin, end] = children_of_.equal_range(found[i]);
      for (auto child = begin; child != end; ++child) found.push_back(child->second);
    }
    found.erase(found.begin());
    for (pid_t& pid : found) pid = own_number(pid, view_);
    std::erase(found, 0);
    return found;
  }
  /// See Descendants::signal_handlers().
  void signal_handlers(pid_t child, int number, Pauses& pauses) const {
    std::vector<pid_t> handlers;
    if (shown(child) != 0)
      handlers = uppermost(children_of_, shown(child), [&](pid_t process) {
        const auto status = [process] { return status_of(std::to_string(process)); };
        return awaits_signal(status, number, std::ref(pauses));
      });
    if (handlers.empty()) send(child, number);
    for (const pid_t process : handlers)
      if (const pid_t pid = own_number(process, view_); pid != 0) send(pid, number);
  }

 private:
  OwnView view_;
  std::multimap<pid_t, pid_t> children_of_;  ///< by the numbers of /proc
  std::map<pid_t, pid_t> shown_;             ///< children of this process, by their numbers here
};

}  // namespace

std::vector<pid_t> parse_namespace_pids(std::string_view status) {
  constexpr std::string_view kName = "\nNSpid:";
  const size_t begin = status.find(kName);
  if (begin == std::string_view::npos) return {};
  status.remove_prefix(begin + kName.size());
  std::vector<pid_t> pids;
  while (const auto pid = take_pid(status)) pids.push_back(*pid);
  return pids;
}

bool awaits_signal(std::string_view status, int number) {
  const uint64_t bit = uint64_t{1} << (number - 1);
  return ((signal_mask(status, "\nSigCgt:\t") | signal_mask(status, "\nSigBlk:\t")) & bit) != 0;
}

bool awaits_signal(const std::function<std::string()>& status, int number,
                   const std::function<bool()>& pause) {
  std::string seen = status();
  while (blocks_all_signals(seen) && pause()) seen = status();
  return awaits_signal(seen, number);
}

std::string why_descendants_are_hidden() {
  if (own_view().shown != 0) return "";
  struct statfs filesystem {};
  const bool mounted = statfs("/proc", &filesystem) == 0 && filesystem.f_type == PROC_SUPER_MAGIC;
  return mounted ? "/proc is that of another PID namespace" : "/proc is not mounted";
}

std::optional<std::vector<pid_t>> find_descendants() {
  const ProcessTree tree;
  if (!tree.is_visible()) return std::nullopt;
  return tree.below(tree.own_shown());
}

void Descendants::add(pid_t child) {
  children_.insert(child);
  groups_.insert(child);
}

void Descendants::signal(int number) const {
  if (auto found = find_descendants()) {
    for (const pid_t child : children_)
      if (std::ranges::find(*found, child) == found->end()) found->push_back(child);
    for (const pid_t pid : *found) send(pid, number);
    return;
  }
  signal_groups(number);
}

/// Reads the tree before it signals the group, which may change the tree.
void Descendants::signal(pid_t child, int number) const {
  const ProcessTree tree;
  const pid_t shown = children_.contains(child) ? tree.shown(child) : 0;
  const std::vector<pid_t> below = shown != 0 ? tree.below(shown) : std::vector<pid_t>();
  signal_group(child, number);
  for (const pid_t pid : below)
    if (getpgid(pid) != child) send(pid, number);
}

void Descendants::signal_groups(int number) const {
  for (const pid_t group : groups_) signal_group(group, number);
}

/// A child that has just been made does not lead its group yet.
void Descendants::signal_group(pid_t child, int number) const {
  const bool leads = groups_.contains(child) && kill(-child, 0) == 0;
  if (leads || children_.contains(child)) send(leads ? -child : child, number);
}

void Descendants::signal_handlers(int number) const {
  const ProcessTree tree;
  Pauses pauses;
  for (const pid_t child : children_) tree.signal_handlers(child, number, pauses);
}

void Descendants::signal_handlers(pid_t child, int number) const {
  Pauses pauses;
  if (children_.contains(child)) ProcessTree().signal_handlers(child, number, pauses);
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

/// The kernel does not reuse the number of a group with members, but may do so afterwards.
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

}  // namespace hvd::launcher
