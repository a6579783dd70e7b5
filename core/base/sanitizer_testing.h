// For tests: limitations of sanitizers.
#pragma once

namespace hvd {

/// UBSan checks vtables through a pipe. If a process has no free descriptor, UBSan reports every
/// object as invalid, so such code cannot be tested with it.
#ifdef __SANITIZE_ADDRESS__  // ASan and UBSan are enabled in the same build
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

}  // namespace hvd
