#include "core/group/doorbells.h"

#include <unistd.h>

#include "core/base/assert.h"

namespace hvd {

void Doorbells::ring(int local_rank) {
  // If several ranks see the flag, one clears it and rings. Partner: set_asleep.
  if (states_[local_rank]->asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
  HVD_ASSERT(bells_[local_rank]);
  const uint64_t once = 1;
  // Fails only if the counter is full; then the sleeper is being woken anyway.
  [[maybe_unused]] const ssize_t written = ::write(bells_[local_rank].get(), &once, sizeof(once));
}

void Doorbells::give_up(int first) {
  std::atomic<uint32_t>& told = states_[local_rank_]->gave_up;
  if (told.load(std::memory_order_relaxed) != 0) return;  // written by this rank only
  const int earlier = who_has_given_up();
  told.store(static_cast<uint32_t>(earlier >= 0 ? earlier : first) + 1, std::memory_order_seq_cst);
  wake_others();
}

int Doorbells::who_has_given_up() const {
  for (int rank = 0; rank < local_ranks(); ++rank) {
    const int why = rank == local_rank_ ? -1 : why_given_up(rank);
    if (why >= 0) return why;
  }
  return -1;
}

}  // namespace hvd
