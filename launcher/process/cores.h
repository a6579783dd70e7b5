// The cores that this process may use and their topology. Reads the kernel's own files, a few per
// core: a library that discovers the whole machine would take longer than starting a job
// (docs/decisions/0022-ranks-are-bound-to-shares-of-the-cores.md). Values.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// A physical core. Its node, cache and package are identified by their lowest CPU.
struct Core {
  int package = 0;
  int node = 0;   ///< NUMA node
  int cache = 0;  ///< level-3 cache
  /// Its allowed hyperthreads, ascending, by the kernel's numbers.
  std::vector<int> cpus{};

  bool operator==(const Core&) const = default;
};

struct Cores {
  /// Cores of one cache are adjacent, as are those of one node and of one package.
  std::vector<Core> list;
  /// The CPU time that a cgroup grants, in CPUs; none: no limit.
  std::optional<double> quota{};
};

/// Converts a list of CPUs to and from the kernel's format, `0-3,8`. Reads up to the first error.
std::vector<int> parse_cpus(std::string_view text);
std::string cpus_text(const std::vector<int>& cpus);

/// Returns the affinity of this thread, which the cpuset of its cgroup limits.
std::vector<int> allowed_cpus();

/// `root`: the folder that holds /sys and /proc, for tests. A CPU without topology files counts as
/// a core.
Cores read_cores(const std::vector<int>& allowed, const std::string& root);

}  // namespace hvd::launcher
