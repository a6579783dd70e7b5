// For CPUs without an implementation of their own: through libc, so a call that fails does change
// errno. A wrong error number in a message is then possible when several programs fail to start.
#include <unistd.h>

#include <cerrno>

#include "job/process/raw_syscall.h"

namespace hvd::job {

long raw_syscall(long number, long first, long second, long third, long fourth) {
  const long result = syscall(number, first, second, third, fourth);
  return result < 0 ? -errno : result;
}

}  // namespace hvd::job
