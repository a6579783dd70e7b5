#include "core/base/descriptor_limit.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"

namespace hvd {
namespace {

/// Reserve for files that the program opens meanwhile and for unauthenticated connections.
constexpr size_t kSpareDescriptors = 32;

/// RLIM_INFINITY is the largest rlim_t, so it needs no case of its own.
size_t bounded(rlim_t limit) { return static_cast<size_t>(std::min<rlim_t>(limit, 1 << 30)); }

}  // namespace

DescriptorLimit descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return {bounded(limit.rlim_cur), bounded(limit.rlim_max)};
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno("getrlimit");
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kMaxDescriptors);
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno("setrlimit");
}

size_t open_descriptors() {
  size_t count = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
  for (; !error && entry != end; entry.increment(error)) ++count;
  return count;
}

void make_room_for_descriptors(size_t more, const std::string& purpose) {
  const size_t needed = open_descriptors() + more + kSpareDescriptors;
  if (needed <= descriptor_limit().soft) return;
  raise_descriptor_limit();
  const size_t allowed = descriptor_limit().soft;
  if (needed <= allowed) return;
  fail(Code::internal,
       fmt::format("{} needs {} open descriptors, but the limit of this process is {}; {}", purpose,
                   needed, allowed, descriptor_advice()));
}

std::string descriptor_advice() {
  const DescriptorLimit limit = descriptor_limit();
  if (limit.soft >= kMaxDescriptors)
    return fmt::format("{} is the maximum that is supported", kMaxDescriptors);
  if (limit.soft < limit.hard)
    return fmt::format("raise the limit: ulimit -n {}", std::min(limit.hard, kMaxDescriptors));
  return fmt::format(
      "raise the hard limit, which is {}: \"nofile\" in /etc/security/limits.conf, LimitNOFILE= of "
      "systemd, or --ulimit nofile= of a container",
      limit.hard);
}

std::string errno_text(int error) {
  const std::string text = std::generic_category().message(error);
  if (error == EMFILE) {
    return fmt::format("{}: the limit of this process is {} open descriptors; {}", text,
                       descriptor_limit().soft, descriptor_advice());
  }
  if (error == ENFILE) {
    return text + ": the open file limit of this machine is reached; raise the sysctl fs.file-max";
  }
  return text;
}

}  // namespace hvd
