#include "core/group/eager_slots.h"

#include <new>
#include <utility>

#include "core/base/assert.h"

namespace hvd {

EagerSlots::EagerSlots(std::vector<std::byte*> areas, size_t most_bytes, Doorbells& doorbells)
    : areas_(std::move(areas)),
      most_bytes_(most_bytes),
      doorbells_(doorbells),
      seen_(areas_.size()) {
  HVD_ASSERT(most_bytes <= kMostBytes && most_bytes % alignof(EagerSlot) == 0);
}

void EagerSlots::make(std::byte* area, size_t most_bytes) {
  for (uint64_t i = 0; i < kSlots; ++i)
    new (area + i * (sizeof(EagerSlot) + most_bytes)) EagerSlot();
}

std::byte* EagerSlots::reserve(size_t message_bytes) {
  HVD_ASSERT(message_bytes <= most_bytes_);
  if (exchange_ > kSlots) {
    const uint64_t after_last_use = exchange_ - kSlots + 1;
    for (int rank = 0; rank < local_ranks(); ++rank) {
      if (rank != local_rank() && !has_posted(rank, after_last_use, 0)) return nullptr;
    }
  }
  return content(slot(local_rank(), exchange_), message_bytes);
}

void EagerSlots::post(size_t bytes) {
  // Release: what was written into the slot. seq_cst: before the look at who is asleep. Partners:
  // has_posted, Doorbells::set_asleep.
  slot(local_rank(), exchange_).posted.store(word_of(exchange_, bytes), std::memory_order_seq_cst);
  for (int rank = 0; rank < local_ranks(); ++rank) {
    if (rank != local_rank()) doorbells_.wake(rank);
  }
}

const std::byte* EagerSlots::view(int rank, size_t message_bytes, size_t bytes) {
  if (rank != local_rank() && !has_posted(rank, exchange_, bytes)) return nullptr;
  return content(slot(rank, exchange_), message_bytes);
}

bool EagerSlots::has_posted(int rank, uint64_t exchange, size_t bytes) {
  const uint64_t wanted = word_of(exchange, bytes);
  if (seen_[rank] >= wanted) return true;
  // Acquire: what was written before. seq_cst: after raising the own flag. Partners: post,
  // Doorbells::set_asleep. A slot that is used again has a larger word.
  const uint64_t word = slot(rank, exchange).posted.load(std::memory_order_seq_cst);
  if (word < wanted) return false;
  seen_[rank] = word;
  return true;
}

}  // namespace hvd
