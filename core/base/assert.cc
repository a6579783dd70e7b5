#include "core/base/assert.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace hvd {
namespace {

std::atomic<AssertionHandler> handler{nullptr};

}  // namespace

AssertionHandler set_assertion_handler(AssertionHandler next) {
  return handler.exchange(next, std::memory_order_acq_rel);  // partner: assertion_failed
}

void assertion_failed(const char* expression, const char* file, int line) {
  if (const AssertionHandler ask = handler.load(std::memory_order_acquire))
    ask(expression, file, line);
  std::fprintf(stderr, "horovod: internal error at %s:%d: expected %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hvd
