#include "core/group/bootstrap/job_key.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

constexpr const char* kKeyVariable = "HOROVOD_KEY_FD";

}  // namespace

JobKey read_job_key(int fd) {
  JobKey key;
  ssize_t count;
  do {
    count = ::pread(fd, key.bytes.data(), key.bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(key.bytes.size())) {
    const std::string why =
        count < 0 ? errno_text(errno) : fmt::format("it holds {} bytes, not a key", count);
    fail(Code::unauthorized,
         fmt::format("descriptor {}, named by {}, cannot be read: {}", fd, kKeyVariable, why));
  }
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) fail_errno("fcntl");
  return key;
}

JobKey read_job_key(const Environment& environment) {
  const auto fd =
      number_variable(environment, kKeyVariable, 0, std::numeric_limits<int32_t>::max());
  if (!fd) {
    fail(Code::unauthorized,
         fmt::format("{} is not set, so this rank has no key of the job; horovodrun sets it",
                     kKeyVariable));
  }
  return read_job_key(static_cast<int>(*fd));
}

}  // namespace hvd
