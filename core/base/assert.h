// HVD_ASSERT states what must be true unless we made a mistake. It is never compiled out: a wrong
// result is worse than a dead process.
#pragma once

namespace hvd {

/// Is asked before the process aborts; may throw instead. Only the simulator installs one, to count
/// what our assertions catch when a rule is removed on purpose.
using AssertionHandler = void (*)(const char* expression, const char* file, int line);
/// Returns the one before; nullptr is none.
AssertionHandler set_assertion_handler(AssertionHandler handler);

/// Prints the expression and where it stands, then aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace hvd

#define HVD_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::hvd::assertion_failed(#condition, __FILE__, __LINE__))
