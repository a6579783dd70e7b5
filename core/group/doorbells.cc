#include "core/group/doorbells.h"

#include <unistd.h>

#include "core/base/assert.h"

namespace hvd {

void Doorbells::ring(int local_rank) {
  // Of several that see the flag, one takes it down and rings. Partner: set_asleep.
  if (states_[local_rank]->asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
  HVD_ASSERT(bells_[local_rank]);
  const uint64_t once = 1;
  // It can fail only when the count is full, and then the sleeper is being woken anyway.
  [[maybe_unused]] const ssize_t written = ::write(bells_[local_rank].get(), &once, sizeof(once));
}

}  // namespace hvd
