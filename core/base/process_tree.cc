#include "core/base/process_tree.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <system_error>

namespace hvd {
namespace {

constexpr int kFieldsFromStateToThreads = 17;

/// Returns the number of threads in the fields of a stat line from the state on.
std::optional<long> threads_in(std::string_view fields) {
  for (int i = 0; i < kFieldsFromStateToThreads; ++i) {
    const size_t blank = fields.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    fields.remove_prefix(blank + 1);
  }
  long threads = 0;
  const auto parsed = std::from_chars(fields.data(), fields.data() + fields.size(), threads);
  return parsed.ec == std::errc{} ? std::optional(threads) : std::nullopt;
}

std::optional<ProcessStat> stat_in(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string line;
  ProcessStat stat;
  if (!std::getline(file, line) || !parse_stat(line, stat)) return std::nullopt;
  return stat;
}

std::string folder_of(pid_t process) { return "/proc/" + std::to_string(process); }

}  // namespace

bool processes_are_visible() {
  std::error_code none;
  const auto self = std::filesystem::read_symlink("/proc/self", none).string();
  return self == std::to_string(::getpid());
}

std::vector<long> status_numbers(pid_t process, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream numbers(line.substr(name.size() + 1));
    return {std::istream_iterator<long>(numbers), {}};
  }
  return {};
}

bool parse_stat(std::string_view line, ProcessStat& stat) {
  // pid (name) state parent ...; the name may hold anything, blanks and parentheses too.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= line.size()) return false;
  const auto pid = std::from_chars(line.data(), line.data() + line.size(), stat.pid);
  stat.state = line[name_end + 2];
  const auto parent =
      std::from_chars(line.data() + name_end + 4, line.data() + line.size(), stat.parent);
  stat.threads = threads_in(line.substr(name_end + 2));
  return pid.ec == std::errc{} && parent.ec == std::errc{};
}

bool outlives_main_thread(pid_t process) {
  const auto stat = stat_in(folder_of(process));
  return stat && stat->state == 'Z' && stat->threads.value_or(1) > 1;
}

std::string folder_of_memory(pid_t process) {
  const std::string own = folder_of(process);
  if (!outlives_main_thread(process)) return own;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(own + "/task", none))
    if (const auto stat = stat_in(entry.path()); stat && stat->state != 'Z') return entry.path();
  return own;
}

// A process that is ending may show no file. One without any file is rare, and not worth a guess.
std::optional<std::string> open_file_of(pid_t process, std::string_view name) {
  const std::string path = folder_of_memory(process) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  std::optional<std::string> found;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string link = path + "/" + static_cast<const char*>(entry->d_name);
    std::error_code none;
    const std::string text = std::filesystem::read_symlink(link, none).string();
    if (text.find(name) != std::string::npos) return link;
    if (!text.empty()) found.emplace();
  }
  return found;
}

pid_t parent_of(pid_t process) {
  const auto parents = status_numbers(process, "PPid");
  return parents.empty() ? 0 : static_cast<pid_t>(parents[0]);
}

std::vector<pid_t> processes_above(pid_t process) {
  std::vector<pid_t> above;
  while (above.size() < kMaxGenerations && (process = parent_of(process)) > 0)
    above.push_back(process);
  return above;
}

}  // namespace hvd
