#include "launcher/process/cores.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>

#include "launcher/process/small_file.h"

namespace hvd::launcher {
namespace {

/// The kernel may be built for 8192 CPUs, and rejects masks that are smaller than its own.
constexpr int kMaxCpus = 1 << 16;

/// Maps each CPU to the lowest CPU of its set. A set is read when its first CPU is looked up.
class Sets {
 public:
  /// Files of a CPU that list its set; the first one that exists is used.
  using Paths = std::vector<std::string>;

  int lowest_with(int cpu, const Paths& paths) {
    const auto known = lowest_.find(cpu);
    if (known != lowest_.end()) return known->second;
    for (const std::string& path : paths) {
      const std::vector<int> set = parse_cpus(read_small_file(path));
      if (std::ranges::find(set, cpu) == set.end()) continue;
      add(set);
      return set.front();
    }
    return lowest_[cpu] = 0;
  }

  void add(const std::vector<int>& set) {
    for (const int cpu : set) lowest_[cpu] = set.front();
  }

 private:
  std::map<int, int> lowest_;
};

/// Nodes list their CPUs; CPUs do not name their node.
Sets read_nodes(const std::string& system) {
  Sets nodes;
  for (const int node : parse_cpus(read_small_file(system + "/node/online")))
    nodes.add(parse_cpus(read_small_file(fmt::format("{}/node/node{}/cpulist", system, node))));
  return nodes;
}

std::vector<int> common(const std::vector<int>& left, const std::vector<int>& right) {
  std::vector<int> both;
  std::ranges::set_intersection(left, right, std::back_inserter(both));
  return both;
}

/// Returns the hyperthreads of the core of `cpu`.
std::vector<int> siblings(const std::string& folder, int cpu) {
  for (const char* file : {"core_cpus_list", "thread_siblings_list"}) {
    std::vector<int> found = parse_cpus(read_small_file(folder + "/topology/" + file));
    if (std::ranges::find(found, cpu) != found.end()) return found;
  }
  return {cpu};
}

/// Returns the number at the beginning of a file; 0 if there is none.
double number_in(std::string_view text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// `max` or a negative quota is no limit. `quota period` are in one file or in two.
std::optional<double> quota_in(const std::string& folder, bool second_version) {
  const std::string first =
      read_small_file(folder + (second_version ? "/cpu.max" : "/cpu.cfs_quota_us"));
  const double quota = number_in(first);
  if (quota <= 0) return std::nullopt;
  const double period =
      number_in(second_version ? first.substr(std::min(first.find(' '), first.size() - 1) + 1)
                               : read_small_file(folder + "/cpu.cfs_period_us"));
  if (period <= 0) return std::nullopt;
  return quota / period;
}

/// Returns the lowest quota of this group and those above it. A container may see its own group as
/// the root.
std::optional<double> least_quota(const std::string& mount, std::string group, bool second) {
  std::optional<double> least;
  while (true) {
    const auto here = quota_in(mount + group, second);
    if (here && (!least || *here < *least)) least = here;
    if (group.empty()) return least;
    group.erase(group.rfind('/'));
  }
}

/// Parses `number:controllers:/group`. Version 2 of cgroups has no controllers in it.
std::optional<double> quota_of_line(const std::string& root, std::string_view line) {
  const size_t first = line.find(':'), second = line.find(":/", first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return std::nullopt;
  const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
  const bool is_second = controllers == ",,";
  if (!is_second && controllers.find(",cpu,") == std::string::npos) return std::nullopt;
  const std::string_view group = line.substr(second + 1);
  return least_quota(root + "/sys/fs/cgroup" + (is_second ? "" : "/cpu"),
                     std::string(group == "/" ? "" : group), is_second);
}

std::optional<double> read_quota(const std::string& root) {
  const std::string text = read_small_file(root + "/proc/self/cgroup");
  std::optional<double> least;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const auto quota = quota_of_line(root, line);
    if (quota && (!least || *quota < *least)) least = quota;
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return least;
}

}  // namespace

std::vector<int> parse_cpus(std::string_view text) {
  std::vector<int> cpus;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    int first = 0;
    auto number = std::from_chars(at, end, first);
    int last = first;
    if (number.ec == std::errc{} && number.ptr != end && *number.ptr == '-')
      number = std::from_chars(number.ptr + 1, end, last);
    if (number.ec != std::errc{} || first < 0 || last >= kMaxCpus) return cpus;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (number.ptr == end || *number.ptr != ',') return cpus;
    at = number.ptr + 1;
  }
}

std::string cpus_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < cpus.size(); begin = end) {
    for (end = begin + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1;) ++end;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", cpus[begin]);
    if (end - begin > 1) text += fmt::format("-{}", cpus[end - 1]);
  }
  return text;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int room = CPU_SETSIZE; room <= kMaxCpus; room *= 2) {
    std::vector<cpu_set_t> mask(static_cast<size_t>(room / CPU_SETSIZE));
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (int cpu = 0; cpu < room; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, mask.data())) cpus.push_back(cpu);
    break;
  }
  return cpus;
}

Cores read_cores(const std::vector<int>& allowed, const std::string& root) {
  const std::string system = root + "/sys/devices/system";
  Sets packages, caches, nodes = read_nodes(system);
  Cores cores;
  std::vector<int> left = allowed;
  std::ranges::sort(left);
  while (!left.empty()) {
    const int cpu = left.front();
    const std::string folder = fmt::format("{}/cpu/cpu{}", system, cpu);
    const std::string topology = folder + "/topology/";
    Core core;
    core.cpus = common(siblings(folder, cpu), left);
    core.package = packages.lowest_with(
        cpu, {topology + "package_cpus_list", topology + "core_siblings_list"});
    core.node = nodes.lowest_with(cpu, {});
    core.cache = caches.lowest_with(cpu, {folder + "/cache/index3/shared_cpu_list"});
    std::vector<int> rest;
    std::ranges::set_difference(left, core.cpus, std::back_inserter(rest));
    left = std::move(rest);
    cores.list.push_back(std::move(core));
  }
  std::ranges::sort(cores.list, {}, [](const Core& core) {
    return std::tuple(core.package, core.node, core.cache, core.cpus.front());
  });
  cores.quota = read_quota(root);
  return cores;
}

}  // namespace hvd::launcher
