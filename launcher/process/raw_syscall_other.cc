// For CPUs without their own implementation: uses libc, so a failing call changes errno. If several
// programs fail to start, an error number in a message may be wrong.
#include <unistd.h>

#include <cerrno>

#include "launcher/process/raw_syscall.h"

namespace hvd::launcher {

long raw_syscall(long number, long first, long second, long third, long fourth) {
  const long result = syscall(number, first, second, third, fourth);
  return result < 0 ? -errno : result;
}

}  // namespace hvd::launcher
