#include "core/group/staging.h"

#include <utility>

#include "core/base/assert.h"

namespace hvd {

uint64_t key_of(Ticket ticket) {
  HVD_ASSERT(ticket.unit <= kMaxUnit);
  HVD_ASSERT(ticket.batch <= kMaxBatch);
  return ticket.batch << kUnitBits | (ticket.unit + 1);
}

Staging::Staging(std::vector<MutableBytes> areas, uint32_t slots, Doorbells& doorbells,
                 SharedCopy& copy)
    : areas_(std::move(areas)),
      unit_bytes_(areas_[0].size() / slots),
      doorbells_(doorbells),
      copy_(copy),
      uses_(slots),
      own_(doorbells.local_rank()),
      seen_published_(areas_.size()),
      seen_released_(areas_.size()) {
  HVD_ASSERT(slots >= 4 && slots % 2 == 0);
}

std::optional<MutableBytes> Staging::reserve(Ticket ticket, size_t bytes) {
  HVD_ASSERT(bytes <= unit_bytes_);
  const uint64_t key = key_of(ticket);
  HVD_ASSERT(key > published_);
  Use& use = uses_[slot_of(ticket)];
  const MutableBytes room = slot_area(own_, ticket).first(bytes);
  if (use.key != key) {
    if (use.key > released_) return std::nullopt;  // not released by this rank
    while (!use.readers.empty()) {
      if (!wait_for_release(use.readers.back(), use.key)) return std::nullopt;
      use.readers.pop_back();
    }
    if (needs_release_of_ != 0) needs_release_of(0);
  }
  use.key = key;
  return room;
}

void Staging::publish(Ticket ticket, std::span<const int> readers) {
  const uint64_t key = key_of(ticket);
  HVD_ASSERT(key > published_);
  if (!readers.empty()) {
    Use& use = uses_[slot_of(ticket)];
    HVD_ASSERT(use.key == key);
    use.readers.assign(readers.begin(), readers.end());
  }
  published_ = key;
  // Release: the bytes written into the slot. seq_cst: before loading the `asleep` flags. Partners:
  // view, set_asleep.
  doorbells_.state(own_).published.store(key, std::memory_order_seq_cst);
  for (const int reader : readers) {
    if (reader != own_) doorbells_.wake(reader);
  }
}

std::optional<ConstBytes> Staging::view(Ticket ticket, int from) {
  const uint64_t key = key_of(ticket);
  HVD_ASSERT(key > released_);
  if (seen_published_[from] < key) {
    // Acquire: the bytes written before. seq_cst: after raising the own flag. Partners: publish,
    // set_asleep.
    seen_published_[from] = doorbells_.state(from).published.load(std::memory_order_seq_cst);
    if (seen_published_[from] < key) return std::nullopt;
  }
  return slot_area(from, ticket);
}

void Staging::release(Ticket ticket, std::span<const int> ranks) {
  const uint64_t key = key_of(ticket);
  HVD_ASSERT(key > released_);
  released_ = key;
  // Release: all reads of the slots come before. seq_cst: before loading `needs_release_of`.
  // Partners: is_released, wait_for_release, set_asleep.
  doorbells_.state(own_).released.store(key, std::memory_order_seq_cst);
  for (const int rank : ranks) {
    if (rank == own_ || !doorbells_.is_asleep(rank)) continue;
    const auto needed = doorbells_.state(rank).needs_release_of.load(std::memory_order_seq_cst);
    if (needed == static_cast<uint32_t>(own_) + 1) doorbells_.wake(rank);
  }
}

bool Staging::is_released(int rank, uint64_t key) {
  if (rank == own_) return released_ >= key;
  if (seen_released_[rank] >= key) return true;
  // Acquire: the reader has finished its reads. Partner: release.
  seen_released_[rank] = doorbells_.state(rank).released.load(std::memory_order_seq_cst);
  return seen_released_[rank] >= key;
}

bool Staging::wait_for_release(int rank, uint64_t key) {
  if (is_released(rank, key)) return true;
  const uint32_t needed = static_cast<uint32_t>(rank) + 1;
  if (needs_release_of_ == needed) return false;
  // The releaser loads this after its store to `released`; this rank loads `released` after this
  // store.
  needs_release_of(needed);
  return is_released(rank, key);
}

void Staging::needs_release_of(uint32_t value) {
  needs_release_of_ = value;
  doorbells_.state(own_).needs_release_of.store(value, std::memory_order_seq_cst);
}

}  // namespace hvd
