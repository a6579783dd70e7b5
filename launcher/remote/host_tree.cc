#include "launcher/remote/host_tree.h"

#include <algorithm>

#include "core/base/assert.h"

namespace hvd::launcher {

std::vector<Branch> branches(size_t first, size_t count, size_t fan_out) {
  HVD_ASSERT(fan_out > 0);
  std::vector<Branch> result;
  const size_t parts = std::min(count, fan_out);
  for (size_t part = 0; part < parts; ++part) {
    const size_t size = count / parts + (part < count % parts ? 1 : 0);
    result.push_back({first, size});
    first += size;
  }
  return result;
}

}  // namespace hvd::launcher
