// For tests: how much memory is allocated.
#pragma once

#include <dlfcn.h>
#include <malloc.h>

#include <cstddef>

#include "core/base/assert.h"

namespace hvd::test {

/// Returns the bytes that are allocated, including large blocks with a mapping of their own. Which
/// blocks have one depends on the CPU and on earlier blocks. The function is found by its name,
/// because the tests are also linked for an older glibc than the one that has it (2.33).
inline size_t heap_bytes() {
  using Function = struct mallinfo2 (*)();
  const auto function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "mallinfo2"));
  HVD_ASSERT(function != nullptr);
  const struct mallinfo2 found = function();
  return found.uordblks + found.hblkhd;
}

}  // namespace hvd::test
