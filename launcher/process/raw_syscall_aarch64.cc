// The calling convention is in syscall(2), "Architecture calling conventions".
#include "launcher/process/raw_syscall.h"

namespace hvd::launcher {

long raw_syscall(long number, long first, long second, long third, long fourth) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = first;
  register long x1 asm("x1") = second;
  register long x2 asm("x2") = third;
  register long x3 asm("x3") = fourth;
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}

}  // namespace hvd::launcher
