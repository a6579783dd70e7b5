#include "launcher/dump/proc.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>

#include "core/base/process_tree.h"
#include "launcher/process/small_file.h"

namespace hvd::launcher {
namespace {

std::string path_of_process(pid_t process, std::string_view file) {
  return "/proc/" + std::to_string(process) + "/" + std::string(file);
}

std::optional<pid_t> number_of(std::string_view name) {
  pid_t number = 0;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), number);
  if (end.ec != std::errc{} || end.ptr != name.data() + name.size()) return std::nullopt;
  return number;
}

/// Returns the texts of a file that ends each with a zero byte.
std::vector<std::string> texts_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\0');) texts.push_back(std::move(text));
  return texts;
}

/// Whether a mask in a status file has the signal.
bool has_signal(const std::string& path, std::string_view mask, int signal) {
  const std::string status = read_small_file(path);
  const size_t begin = status.find(mask);
  if (signal <= 0 || begin == std::string::npos) return false;
  uint64_t bits = 0;
  const char* const text = status.data() + begin + mask.size();
  std::from_chars(text, status.data() + status.size(), bits, 16);
  return (bits >> (signal - 1) & 1) != 0;
}

std::string link_text(const std::filesystem::path& link) {
  std::error_code none;
  return std::filesystem::read_symlink(link, none).string();
}

}  // namespace

ProcessParents all_processes() {
  ProcessParents all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const auto number = number_of(entry->d_name);
    ProcessStat stat;
    if (number && parse_stat(read_small_file(path_of_process(*number, "stat")), stat))
      all[*number] = stat.parent;
  }
  return all;
}

char state_of(pid_t process) {
  ProcessStat stat;
  return parse_stat(read_small_file(path_of_process(process, "stat")), stat) ? stat.state : '?';
}

std::vector<pid_t> children_of(pid_t parent, const ProcessParents& all) {
  std::vector<pid_t> children;
  for (const auto& [process, its_parent] : all)
    if (its_parent == parent) children.push_back(process);
  return children;
}

std::vector<pid_t> tree_of(pid_t root, const ProcessParents& all) {
  std::vector<pid_t> found{root};
  for (size_t i = 0; i < found.size(); ++i)
    for (const pid_t child : children_of(found[i], all)) found.push_back(child);
  return found;
}

std::string process_name(pid_t process) {
  std::string name = read_small_file(path_of_process(process, "comm"));
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

std::vector<std::string> arguments_of(pid_t process) {
  return texts_in(path_of_process(process, "cmdline"));
}

Environment environment_of(pid_t process) {
  Environment environment;
  for (const std::string& text : texts_in(folder_of_memory(process) + "/environ"))
    if (const size_t equals = text.find('='); equals != std::string::npos)
      environment.insert_or_assign(text.substr(0, equals), text.substr(equals + 1));
  return environment;
}

bool is_own(pid_t process) {
  struct stat facts {};
  return stat(path_of_process(process, "").c_str(), &facts) == 0 && facts.st_uid == geteuid();
}

bool handles_signal(pid_t process, int signal) {
  return has_signal(path_of_process(process, "status"), "\nSigCgt:\t", signal);
}

std::vector<pid_t> sleeping_threads(pid_t process, int signal) {
  std::vector<pid_t> threads;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(path_of_process(process, "task"), none)) {
    const auto thread = number_of(entry.path().filename().string());
    ProcessStat stat;
    if (!thread || *thread == process ||
        !parse_stat(read_small_file(entry.path() / "stat"), stat) || stat.state != 'S')
      continue;
    if (!has_signal(entry.path() / "status", "\nSigBlk:\t", signal)) threads.push_back(*thread);
  }
  return threads;
}

/// "<number> <first argument> ...", in hexadecimal but for the number; "running" otherwise.
std::optional<BlockedCall> parse_syscall(std::string_view text) {
  long number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr std::string_view kHex = " 0x";
  const std::string_view rest = text.substr(static_cast<size_t>(parsed.ptr - text.data()));
  if (parsed.ec != std::errc{} || !rest.starts_with(kHex)) return std::nullopt;
  int first = -1;
  std::from_chars(rest.data() + kHex.size(), rest.data() + rest.size(), first, 16);
  switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
      return BlockedCall{"read", first};
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
      return BlockedCall{"write", first};
    case SYS_openat:
      return BlockedCall{"open"};
    case SYS_newfstatat:
    case SYS_statx:
      return BlockedCall{"stat"};
    case SYS_fstat:
      return BlockedCall{"stat", first};
    case SYS_getdents64:
      return BlockedCall{"readdir", first};
    case SYS_fsync:
    case SYS_fdatasync:
      return BlockedCall{"fsync", first};
    case SYS_flock:
      return BlockedCall{"flock", first};
    default:
      return std::nullopt;
  }
}

std::string kernel_place(pid_t process) {
  const auto call = parse_syscall(read_small_file(path_of_process(process, "syscall")));
  std::string function = read_small_file(path_of_process(process, "wchan"));
  if (function == "0") function.clear();
  if (!call) return function;
  if (call->descriptor < 0)
    return function.empty() ? std::string(call->name)
                            : std::string(call->name) + " (" + function + ")";
  const std::string file =
      link_text(path_of_process(process, "fd/" + std::to_string(call->descriptor)));
  return std::string(call->name) + " of " + (file.empty() ? "a file" : file);
}

}  // namespace hvd::launcher
