#include "core/base/error.h"

#include <cerrno>

#include "core/base/descriptor_limit.h"

namespace hvd {

void fail(Code code, const std::string& text, int rank) { throw Error(code, text, rank); }

void fail_errno(const std::string& doing) {
  const int saved = errno;
  fail(Code::internal, doing + ": " + errno_text(saved));
}

}  // namespace hvd
