// How many descriptors this process may have open (RLIMIT_NOFILE), and how it gets more. Any thread
// may call these; the limit belongs to the whole process.
#pragma once

#include <cstddef>
#include <string>

namespace hvd {

/// The most that this process ever asks for: FileDescriptor has a table of this size.
inline constexpr size_t kMaxDescriptors = size_t{1} << 16;

struct DescriptorLimit {
  size_t soft = 0;  ///< what is enforced
  size_t hard = 0;  ///< what the soft limit may be raised to
};
DescriptorLimit descriptor_limit();

/// Counted in /proc/self/fd; 0 where that cannot be read.
size_t open_descriptors();

/// Raises the soft limit to the hard one, but to no more than kMaxDescriptors. Throws
/// Error{internal} when the system refuses that.
void raise_descriptor_limit();

/// Raises the limit like that if `more` descriptors beside the open ones would exceed it, and
/// otherwise leaves it alone: children inherit it, and a program that uses select() expects numbers
/// below 1024. Throws Error{internal} that names `purpose`, both
/// numbers and what to do if the hard limit is too low.
void make_room_for_descriptors(size_t more, const std::string& purpose);

/// What to do about the limit: "ulimit -n 4096", or where the hard limit is set. Of one that would
/// be of no use above kMaxDescriptors, that.
std::string descriptor_advice();

/// The system's text of an errno value. Where descriptors have run out, with the limit and what to
/// do about it.
std::string errno_text(int error);

}  // namespace hvd
