// HVD_ASSERT checks an invariant of the runtime. It is never compiled out: a wrong result is worse
// than a dead process.
#pragma once

namespace hvd {

/// Called before the process aborts; may throw instead. Only the simulator installs one, to count
/// the assertions that fire when a protocol rule is removed on purpose.
using AssertionHandler = void (*)(const char* expression, const char* file, int line);
/// Returns the previous handler; nullptr: none.
AssertionHandler set_assertion_handler(AssertionHandler handler);

/// Prints the expression, file and line, then aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace hvd

#define HVD_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::hvd::assertion_failed(#condition, __FILE__, __LINE__))
