// The calling convention is in syscall(2), "Architecture calling conventions".
#include "launcher/process/raw_syscall.h"

namespace hvd::launcher {

long raw_syscall(long number, long first, long second, long third, long fourth) {
  register long r10 asm("r10") = fourth;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
               : "rcx", "r11", "memory");
  return result;
}

}  // namespace hvd::launcher
