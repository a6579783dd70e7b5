// HVD_ASSERT states what must be true unless we made a mistake. It is never compiled out: a wrong
// result is worse than a dead process.
#pragma once

namespace hvd {

/// Prints the expression and where it stands, then aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace hvd

#define HVD_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::hvd::assertion_failed(#condition, __FILE__, __LINE__))
