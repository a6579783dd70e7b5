#include "core/bootstrap/secret_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/transport/digest.h"
#include "core/transport/file_descriptor.h"

namespace hvd {
namespace {

constexpr size_t kMinSecretBytes = 16;  // 128 bits, if they are random
constexpr size_t kMaxSecretBytes = 4 * KiB;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  fail(Code::unauthorized, fmt::format("HOROVOD_SECRET_FILE={}: {}", file, why));
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Checks the open file, which cannot be replaced after the check.
void require_safe(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode))
    refuse(path, fmt::format("it is {}, not a regular file", kind_of(status.st_mode)));
  // Root can read any file, but the content of this one is known to the user who owns it.
  if (status.st_uid != ::geteuid()) {
    refuse(path, fmt::format("it belongs to user {}, and this process runs as user {}: chown {} {}",
                             status.st_uid, ::geteuid(), ::geteuid(), path));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(path, fmt::format("it is accessible to other users: chmod 600 {}", path));
  if (status.st_size > static_cast<off_t>(kMaxSecretBytes)) {
    refuse(path,
           fmt::format("it has {} bytes; the maximum is {}", status.st_size, kMaxSecretBytes));
  }
}

/// Follows links; the checks apply to their target. Does not block on a FIFO or a device.
std::string read_secret(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) refuse(path, errno_text(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("fstat");
  require_safe(path, status);
  std::string text(kMaxSecretBytes, '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  if (count < 0) refuse(path, errno_text(errno));
  text.resize(static_cast<size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kMinSecretBytes) {
    refuse(path, fmt::format("it has {} bytes; the minimum is {}; create one with: head -c 32 "
                             "/dev/urandom | base64 > {}",
                             text.size(), kMinSecretBytes, path));
  }
  return text;
}

}  // namespace

JobKey shared_key(const Knobs& knobs, const Address& address) {
  if (!knobs.secret_file.empty()) {
    const std::string secret = "horovod job key " + read_secret(knobs.secret_file);
    return {sha256(as_bytes(secret))};
  }
  if (!knobs.no_secret) {
    fail(Code::unauthorized,
         fmt::format("the ranks connect at {}, which other machines may reach too, and have no "
                     "secret to authenticate each other: create a file with `head -c 32 "
                     "/dev/urandom | base64 > F; chmod 600 F`, copy it to all hosts and set "
                     "HOROVOD_SECRET_FILE=F; or set HOROVOD_NO_SECRET=1 if no other user can "
                     "reach these ports",
                     to_text(address)));
  }
  log(LogLevel::warning,
      fmt::format(
          "HOROVOD_NO_SECRET=1: anyone who can reach {} can join this job, and read and change "
          "its tensors",
          to_text(address)));
  return JobKey{};  // all zeros
}

}  // namespace hvd
