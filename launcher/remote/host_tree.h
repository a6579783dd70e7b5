// The tree of hosts. The launcher starts agents on a few hosts, these start agents on a few more
// each, so that the number of ssh processes per host is bounded and the depth is small. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd::launcher {

/// A contiguous part of the list of hosts. The first is reached directly, the others through it.
struct Branch {
  size_t first = 0;
  size_t count = 0;
  bool operator==(const Branch&) const = default;
};

/// Splits the `count` hosts from `first` on into at most `fan_out` branches, in order and as equal
/// as possible, larger ones first.
std::vector<Branch> branches(size_t first, size_t count, size_t fan_out);

}  // namespace hvd::launcher
