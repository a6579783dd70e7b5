#include "core/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace hvd {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "horovod: internal error at %s:%d: expected %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hvd
