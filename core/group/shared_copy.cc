#include "core/group/shared_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/kernel/kernel.h"

namespace hvd {
namespace {

const SystemClock system_clock;

// Only every n-th copy is timed: reading the clock twice takes as long as copying a kilobyte. The
// number is odd, since calls often come in even periods.
constexpr unsigned kTimed = 7;

}  // namespace

void StoreChoice::took(size_t bytes, Duration time) {
  bytes_ += std::min(bytes, kMostCounted);
  if (!streams_ && bytes_ < settling_bytes_) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  const double rate = static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(ns, 1));
  suspicions_ = rate < slow_ ? suspicions_ + 1 : 0;
  const bool is_slow = suspicions_ == kSuspicions;
  if (!streams_ && is_slow) {
    change(true, 0);
    slow_ = rate;
  } else if (streams_ && (is_slow || bytes_ >= kTrialBytes)) {
    change(false, is_slow ? kTrialBytes : kSettlingBytes);
  }
}

void StoreChoice::change(bool streams, size_t settling_bytes) {
  *this = StoreChoice();
  streams_ = streams;
  settling_bytes_ = settling_bytes;
}

SharedCopy::SharedCopy() : SharedCopy(system_clock) {}

void SharedCopy::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes < kLeastStreamed) {
    std::memcpy(to, from, bytes);
  } else if (++copies_ % kTimed != 0) {
    store(to, from, bytes);
  } else {
    const TimePoint begin = clock_.now();
    store(to, from, bytes);
    choice_.took(bytes, clock_.now() - begin);
  }
}

void SharedCopy::store(std::byte* to, const std::byte* from, size_t bytes) const {
  if (choice_.streams())
    kernel::copy_past_caches(to, from, bytes);
  else
    kernel::copy(to, from, bytes);
}

}  // namespace hvd
