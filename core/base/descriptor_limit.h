// The limit on open file descriptors (RLIMIT_NOFILE) and how to raise it. Any thread may call
// these; the limit belongs to the whole process.
#pragma once

#include <cstddef>
#include <string>

namespace hvd {

/// Upper bound on the limit that this process sets: FileDescriptor has a table of this size.
inline constexpr size_t kMaxDescriptors = size_t{1} << 16;

struct DescriptorLimit {
  size_t soft = 0;  ///< the enforced limit
  size_t hard = 0;  ///< the maximum for `soft`
};
DescriptorLimit descriptor_limit();

/// Counts the entries of /proc/self/fd; 0 if it cannot be read.
size_t open_descriptors();

/// Raises the soft limit to the hard limit, but not above kMaxDescriptors. Throws Error{internal}
/// if the system refuses.
void raise_descriptor_limit();

/// Raises the limit as above, but only if the open descriptors and `more` together exceed it:
/// children inherit the limit, and programs that use select() expect descriptors below 1024. Throws
/// Error{internal} with `purpose`, both numbers and the remedy if the hard limit is too low.
void make_room_for_descriptors(size_t more, const std::string& purpose);

/// Returns the remedy: "ulimit -n 4096", or where the hard limit is configured. States if a limit
/// above kMaxDescriptors would have no effect.
std::string descriptor_advice();

/// Returns the system's text for an errno value. If descriptors have run out, adds the limit and
/// the remedy.
std::string errno_text(int error);

}  // namespace hvd
