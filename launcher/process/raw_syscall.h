// Makes a system call without libc's errno. A child that shares memory with its parent also shares
// errno, so a failing call of one would change the errno of the other. launcher/CMakeLists.txt
// chooses the implementation by CPU.
#pragma once

namespace hvd::launcher {

/// Returns the kernel's result; -errno on failure. Any thread may call.
long raw_syscall(long number, long first = 0, long second = 0, long third = 0, long fourth = 0);

}  // namespace hvd::launcher
