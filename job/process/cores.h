// Which cores this process may use, and how they lie in the machine: read from the kernel's own
// files, a few for each core, since a job starts in the time that a library needs to look at all of
// the machine (docs/decisions/0022-ranks-are-bound-to-shares-of-the-cores.md). Owned by nobody:
// values.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::job {

/// A physical core. What it is part of is known by the lowest CPU of that.
struct Core {
  int package = 0;
  int node = 0;   ///< of memory
  int cache = 0;  ///< of the third level
  /// Its hyperthreads that may be used, ascending, by the kernel's numbers.
  std::vector<int> cpus{};

  bool operator==(const Core&) const = default;
};

struct Cores {
  /// Those of one cache lie beside each other, and those of one node, and those of one package.
  std::vector<Core> list;
  /// A cgroup grants the time of so many CPUs; none: of all.
  std::optional<double> quota{};
};

/// `0-3,8`: as the kernel writes lists of CPUs, and back. Reads as far as it is one.
std::vector<int> parse_cpus(std::string_view text);
std::string cpus_text(const std::vector<int>& cpus);

/// By the affinity of this thread, and so by the cpuset of its cgroup.
std::vector<int> allowed_cpus();

/// `root`: what lies above /sys and /proc; tests have trees of their own. A CPU of which the kernel
/// tells nothing is a core.
Cores read_cores(const std::vector<int>& allowed, const std::string& root);

}  // namespace hvd::job
