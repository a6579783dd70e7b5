#include "core/group/eager_buffers.h"

#include <new>
#include <utility>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {

EagerBuffers::EagerBuffers(std::vector<std::byte*> areas, Sizes sizes, Doorbells& doorbells,
                           SharedCopy& copy)
    : areas_(std::move(areas)),
      sizes_(sizes),
      doorbells_(doorbells),
      copy_(copy),
      seen_(areas_.size()),
      places_(areas_.size()) {
  HVD_ASSERT(sizes.most_bytes <= kMostBytes && sizes.most_bytes % kCacheLine == 0);
  HVD_ASSERT(sizes.ring_bytes >= least_ring_bytes(sizes.most_bytes));
  HVD_ASSERT(sizes.ring_bytes % kCacheLine == 0);
}

void EagerBuffers::make(std::byte* area) {
  for (uint64_t i = 0; i < kSlots; ++i) new (area + i * sizeof(EagerBuffer)) EagerBuffer();
}

std::byte* EagerBuffers::reserve(size_t message_bytes) {
  HVD_ASSERT(message_bytes <= sizes_.most_bytes);
  if (exchange_ > kSlots) {
    const uint64_t after_last_use = exchange_ - kSlots + 1;
    for (int rank = 0; rank < local_ranks(); ++rank) {
      if (rank != local_rank() && !has_posted(rank, after_last_use, 0)) return nullptr;
    }
  }
  if (message_bytes > sizeof(EagerBuffer::behind)) {
    const uint64_t place = next_place(message_bytes);
    std::memcpy(slot(local_rank(), exchange_).beside.data(), &place, sizeof(place));
  }
  return content(local_rank(), message_bytes);
}

uint64_t EagerBuffers::next_place(size_t message_bytes) {
  const size_t room = (message_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t place = ring_end_ + room <= sizes_.ring_bytes ? ring_end_ : 0;
  ring_end_ = place + room;
  return place;
}

/// Returns the offset in the ring of the current message of `rank`.
std::byte* EagerBuffers::content(int rank, size_t message_bytes) {
  EagerBuffer& slot = this->slot(rank, exchange_);
  if (message_bytes <= slot.beside.size()) return slot.beside.data();
  if (message_bytes <= slot.behind.size()) return slot.behind.data();
  const uint64_t place = place_in_ring(rank);
  HVD_ASSERT(place <= sizes_.ring_bytes - message_bytes);
  return areas_[rank] + kSlots * sizeof(EagerBuffer) + place;
}

/// Computed once per exchange: the offset is in the cache line of the flag, so reading it after
/// each piece would fetch the line again from a core that posts the next piece
/// (docs/decisions/0025).
uint64_t EagerBuffers::place_in_ring(int rank) {
  RingPlace& place = places_[rank];
  if (place.exchange != exchange_) {
    std::memcpy(&place.at, slot(rank, exchange_).beside.data(), sizeof(place.at));
    place.exchange = exchange_;
  }
  return place.at;
}

void EagerBuffers::post(size_t bytes) {
  // Release: the bytes written into the slot. seq_cst: before loading the `asleep` flags. Partners:
  // has_posted, Doorbells::set_asleep.
  slot(local_rank(), exchange_).posted.store(word_of(exchange_, bytes), std::memory_order_seq_cst);
  doorbells_.wake_others();
}

const std::byte* EagerBuffers::view(int rank, size_t message_bytes, size_t bytes) {
  if (rank != local_rank() && !has_posted(rank, exchange_, bytes)) return nullptr;
  return content(rank, message_bytes);
}

void EagerBuffers::fetch_next(size_t message_bytes) {
  EagerBuffer& next = slot(local_rank(), exchange_ + 1);
  if (message_bytes <= next.beside.size())
    kernel::fetch_for_writing(&next, kCacheLine);
  else if (message_bytes <= next.behind.size())
    kernel::fetch_for_writing(next.behind.data(), message_bytes);
}

std::optional<int> EagerBuffers::claim(int shares) {
  std::atomic<uint64_t>& claimed = slot(0, exchange_).claimed;
  uint64_t word = claimed.load(std::memory_order_relaxed);
  while (true) {
    const int next = shares_in(word, exchange_);
    HVD_ASSERT(next <= shares);
    if (next == shares) return std::nullopt;
    // Relaxed: only the number is used, and the posts have been seen already.
    if (claimed.compare_exchange_weak(word, word_of(exchange_, next + 1),
                                      std::memory_order_relaxed))
      return next;
  }
}

void EagerBuffers::tell_made(int shares) {
  std::atomic<uint64_t>& made = slot(0, exchange_).made;
  uint64_t word = made.load(std::memory_order_relaxed);
  int count = 0;
  // Release: the bytes of the share. seq_cst: before loading the `asleep` flags. Partners:
  // all_are_made, Doorbells::set_asleep.
  do count = shares_in(word, exchange_) + 1;
  while (!made.compare_exchange_weak(word, word_of(exchange_, count), std::memory_order_seq_cst));
  if (count == shares) doorbells_.wake_others();
}

bool EagerBuffers::all_are_made(int shares) const {
  // Acquire: the bytes of the shares. seq_cst: after raising the own flag. Partners: tell_made,
  // Doorbells::set_asleep.
  const uint64_t word = slot(0, exchange_).made.load(std::memory_order_seq_cst);
  return shares_in(word, exchange_) == shares;
}

bool EagerBuffers::begin_writing() {
  doorbells_.set_writing(true);
  if (who_has_given_up() < 0) return true;
  doorbells_.set_writing(false);
  return false;
}

bool EagerBuffers::has_posted(int rank, uint64_t exchange, size_t bytes) {
  const uint64_t wanted = word_of(exchange, bytes);
  if (reaches(seen_[rank], wanted)) return true;
  // Acquire: the bytes written before. seq_cst: after raising the own flag. Partners: post,
  // Doorbells::set_asleep. A reused slot has a later word.
  const uint64_t word = slot(rank, exchange).posted.load(std::memory_order_seq_cst);
  if (!reaches(word, wanted)) return false;
  seen_[rank] = word;
  return true;
}

}  // namespace hvd
