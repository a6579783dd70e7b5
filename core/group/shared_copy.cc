#include "core/group/shared_copy.h"

#include <cstring>

#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// To ask for the time twice takes as long as to copy a kilobyte.
constexpr unsigned kTimed = 8;

}  // namespace

void StoreChoice::took(size_t bytes, std::chrono::nanoseconds time) {
  bytes_ += bytes;
  if (streams_) {
    if (bytes_ >= kStreamedBytes) *this = StoreChoice();
    return;
  }
  if (bytes_ < kSettlingBytes) return;
  const auto allowed = static_cast<double>(bytes) / kSlowBytesPerNs;
  suspicions_ = static_cast<double>(time.count()) > allowed ? suspicions_ + 1 : 0;
  if (suspicions_ < kSuspicions) return;
  streams_ = true;
  bytes_ = 0;
}

void SharedCopy::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes < StoreChoice::kLeastBytes) {
    std::memcpy(to, from, bytes);
  } else if (++copies_ % kTimed != 0) {
    store(to, from, bytes);
  } else {
    const auto begin = std::chrono::steady_clock::now();
    store(to, from, bytes);
    choice_.took(bytes, std::chrono::steady_clock::now() - begin);
  }
}

void SharedCopy::store(std::byte* to, const std::byte* from, size_t bytes) const {
  if (choice_.streams())
    kernel::copy_past_caches(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace hvd
