// For tests: what sanitizers cannot stand.
#pragma once

namespace hvd {

/// UBSan looks at virtual tables by way of a pipe. Where a process has no descriptor left it takes
/// every object for broken, so code that runs there cannot be tested with it.
#ifdef __SANITIZE_ADDRESS__  // both are in one build
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

}  // namespace hvd
