// A system call without libc's errno. A child that shares memory with its parent shares errno too,
// so a failing call of one would change what the other is about to read. Which implementation is
// built depends on the CPU (job/CMakeLists.txt).
#pragma once

namespace hvd::job {

/// The result of the kernel; -errno when the call has failed. Any thread.
long raw_syscall(long number, long first = 0, long second = 0, long third = 0, long fourth = 0);

}  // namespace hvd::job
