#include "core/base/error.h"

#include <cerrno>
#include <cstring>

namespace hvd {

void fail(Code code, const std::string& text, int rank) { throw Error(code, text, rank); }

void fail_errno(const std::string& doing) {
  const int saved = errno;
  fail(Code::internal, doing + ": " + std::strerror(saved));
}

}  // namespace hvd
