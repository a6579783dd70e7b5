// The first step of a job: every rank lays down its card in the Store, rank 0 looks at all of them,
// and everybody goes on with the same table or fails with the same error.
#pragma once

#include <vector>

#include "core/base/clock.h"
#include "core/group/bootstrap/card.h"
#include "core/transport/store.h"

namespace hvd {

/// When the start of a job is given up, and how the user knows it.
struct StartDeadline {
  TimePoint at;
  std::chrono::seconds allowed{0};

  explicit StartDeadline(std::chrono::seconds allowed);
  Duration left() const;
  /// Throws Error{timed_out}: "<what> within 30 s (HOROVOD_START_TIMEOUT)".
  [[noreturn]] void fail_at(const std::string& what, int rank) const;
};

std::string store_key(uint32_t generation, const std::string& what);

/// All cards, in the order of ranks. Throws Error{timed_out} naming the ranks that have not come,
/// Error{invalid_argument} when the cards cannot be one job.
std::vector<Card> meet(Store& store, const Card& mine, uint32_t generation,
                       const StartDeadline& deadline);

}  // namespace hvd
