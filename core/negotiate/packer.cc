#include "core/negotiate/packer.h"

#include <utility>

#include "core/base/assert.h"

namespace hvd {

Cut cut_batch(const ReadyQueue& queue, uint64_t fusion_bytes) {
  HVD_ASSERT(!queue.empty() && !queue.front().join_done);
  const Signature& first = queue.front().signature;
  Cut cut{.taken = {0}, .bytes = first.payload_bytes()};
  cut.full = !may_fuse(first, first) || cut.bytes >= fusion_bytes;
  for (size_t i = 1; i < queue.size() && !cut.full && !queue[i].join_done; ++i) {
    if (!may_fuse(queue[i].signature, first)) continue;
    const uint64_t bytes = queue[i].signature->payload_bytes();
    if (cut.bytes + bytes > fusion_bytes) {
      cut.full = true;
    } else {
      cut.bytes += bytes;
      cut.taken.push_back(i);
    }
  }
  return cut;
}

std::vector<SharedSignature> take(ReadyQueue& queue, const Cut& cut) {
  std::vector<SharedSignature> taken;
  taken.reserve(cut.taken.size());
  ReadyQueue left;
  for (size_t i = 0; i <= cut.taken.back(); ++i) {
    if (cut.taken[taken.size()] == i) {
      taken.push_back(std::move(queue[i].signature));
    } else {
      left.push_back(std::move(queue[i]));
    }
  }
  // Entries after the last one taken are not moved.
  queue.erase(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(cut.taken.back()) + 1);
  queue.insert(queue.begin(), std::make_move_iterator(left.begin()),
               std::make_move_iterator(left.end()));
  return taken;
}

}  // namespace hvd
