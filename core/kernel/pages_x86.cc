#include "core/kernel/pages.h"

namespace hvd::kernel {

bool goes_by_pages(size_t vector_bytes) {
  static const bool is_by_intel = (__builtin_cpu_init(), __builtin_cpu_is("intel") != 0);
  return is_by_intel && vector_bytes >= kCacheLine;
}

}  // namespace hvd::kernel
