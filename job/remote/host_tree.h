// Which host is reached from which. The launcher starts agents on a few hosts, these on a few more
// each, so that nobody has more than so many ssh, and a thousand hosts are two steps away. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd::job {

/// A stretch of a list of hosts: the first is reached by whoever cuts the list, and reaches the
/// others.
struct Branch {
  size_t first = 0;
  size_t count = 0;
  bool operator==(const Branch&) const = default;
};

/// Cuts a stretch of `count` hosts that begins at `first` into at most `fan_out` branches, in order
/// and as equal as can be, the larger ones first.
std::vector<Branch> branches(size_t first, size_t count, size_t fan_out);

}  // namespace hvd::job
