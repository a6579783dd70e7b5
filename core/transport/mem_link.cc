#include "core/transport/mem_link.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <random>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {

struct MemLink::Wire {
  struct Direction {
    std::deque<std::byte> bytes;
    bool ended = false;  ///< the sender has closed
  };

  explicit Wire(const MemLinkOptions& o) : options(o), random(o.split_seed) {}

  /// Returns how many of `possible` bytes are moved by this call; at least one, since a progress
  /// thread would otherwise wait for a doorbell.
  size_t portion(size_t possible) {
    if (options.split_seed == 0 || possible == 0) return possible;
    return std::uniform_int_distribution<size_t>(1, possible)(random);
  }

  const MemLinkOptions options;
  std::mutex mutex;
  std::mt19937_64 random;
  std::array<Direction, 2> from;  ///< [side]
  bool broken = false;
};

std::pair<std::unique_ptr<MemLink>, std::unique_ptr<MemLink>> MemLink::make_pair(
    const MemLinkOptions& options) {
  HVD_ASSERT(options.capacity > 0);
  auto wire = std::make_shared<Wire>(options);
  return {std::unique_ptr<MemLink>(new MemLink(wire, 0)),
          std::unique_ptr<MemLink>(new MemLink(wire, 1))};
}

MemLink::~MemLink() {
  const std::lock_guard lock(wire_->mutex);
  wire_->from[side_].ended = true;
}

size_t MemLink::send_some(ConstBytes bytes) {
  const std::lock_guard lock(wire_->mutex);
  if (wire_->broken || wire_->from[1 - side_].ended) return 0;
  auto& way = wire_->from[side_].bytes;
  const size_t count = wire_->portion(std::min(bytes.size(), wire_->options.capacity - way.size()));
  way.insert(way.end(), bytes.begin(), bytes.begin() + count);
  return count;
}

size_t MemLink::receive_some(MutableBytes room) {
  HVD_ASSERT(!room.empty());
  const std::lock_guard lock(wire_->mutex);
  auto& way = wire_->from[1 - side_];
  const int peer = side_ == 0 ? wire_->options.second_rank : wire_->options.first_rank;
  if (wire_->broken) fail(Code::peer_lost, "the connection to " + peer_name(peer) + " broke", peer);
  if (way.bytes.empty() && way.ended)
    fail(Code::peer_lost, peer_name(peer) + " closed the connection", peer);
  const size_t count = wire_->portion(std::min(room.size(), way.bytes.size()));
  std::copy_n(way.bytes.begin(), count, room.begin());
  way.bytes.erase(way.bytes.begin(), way.bytes.begin() + count);
  return count;
}

size_t MemLink::available() const {
  const std::lock_guard lock(wire_->mutex);
  return wire_->from[1 - side_].bytes.size();
}

void MemLink::break_now() {
  const std::lock_guard lock(wire_->mutex);
  wire_->broken = true;
  for (auto& direction : wire_->from) direction.bytes.clear();
}

}  // namespace hvd
