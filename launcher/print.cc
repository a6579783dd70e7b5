#include "launcher/print.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "core/base/descriptor_limit.h"

namespace hvd::launcher {

int print(const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t size = write(STDOUT_FILENO, rest.data(), rest.size());
    if (size >= 0) {
      rest.remove_prefix(static_cast<size_t>(size));
    } else if (errno == EPIPE) {
      return 0;
    } else if (errno != EINTR) {
      fmt::print(stderr, "horovodrun: standard output cannot be written: {}\n", errno_text(errno));
      return 1;
    }
  }
  return 0;
}

}  // namespace hvd::launcher
