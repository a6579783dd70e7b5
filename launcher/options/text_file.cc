#include "launcher/options/text_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "core/base/bytes.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/transport/file_descriptor.h"

namespace hvd::launcher {
namespace {

/// A host file of the largest clusters has a few thousand lines.
constexpr size_t kMaxTextBytes = 4 * MiB;
/// How long a command that writes into a pipe may be silent.
constexpr std::chrono::seconds kMaxSilence{30};

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& why) {
  fail(Code::invalid_argument, fmt::format("{} {}: it cannot be read: {}", what, path, why));
}

/// Returns false if no data came in time. Files are always readable, pipes once they have a writer.
bool wait_for_text(const FileDescriptor& file) {
  const int limit = static_cast<int>(std::chrono::milliseconds(kMaxSilence).count());
  pollfd watched{file.get(), POLLIN, 0};
  int count = 0;
  while ((count = poll(&watched, 1, limit)) < 0 && errno == EINTR) {
  }
  return count > 0;
}

}  // namespace

std::string read_text_file(const std::string& path, const std::string& what) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) refuse(path, what, errno_text(errno));
  std::string text;
  while (true) {
    if (!wait_for_text(file))
      refuse(path, what, fmt::format("nothing was written to it for {} s", kMaxSilence.count()));
    std::array<char, 4096> bytes;
    const ssize_t size = read(file.get(), bytes.data(), bytes.size());
    if (size == 0) return text;
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) refuse(path, what, errno_text(errno));
    text.append(bytes.data(), static_cast<size_t>(size));
    if (text.size() > kMaxTextBytes)
      refuse(path, what, fmt::format("it has more than {} bytes", kMaxTextBytes));
  }
}

}  // namespace hvd::launcher
