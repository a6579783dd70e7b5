#include "launcher/process/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace hvd::launcher {

std::string read_small_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[16384];
  const ssize_t size = read(fd, text, sizeof(text));
  close(fd);
  return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace hvd::launcher
