#include "core/group/bootstrap/secret_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/log.h"
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

/// Of the open file, so that nobody can put another one in its place after the check.
void require_safe(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode))
    refuse(path, fmt::format("it is {}, not a regular file", kind_of(status.st_mode)));
  // Root can read the files of everybody, but what another user has written is known to that user.
  if (status.st_uid != ::geteuid()) {
    refuse(path, fmt::format("it belongs to user {}, and this process runs as user {}: chown {} {}",
                             status.st_uid, ::geteuid(), ::geteuid(), path));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(path, fmt::format("others may read or write it: chmod 600 {}", path));
  if (status.st_size > static_cast<off_t>(kMaxSecretBytes)) {
    refuse(path,
           fmt::format("it has {} bytes, and {} are the most", status.st_size, kMaxSecretBytes));
  }
}

/// Links are followed: it is the file at their end that must be safe. A FIFO or a device must not
/// hold up the start of a job.
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
    refuse(path, fmt::format("it has {} bytes, and {} are the least; make one by: head -c 32 "
                             "/dev/urandom | base64 > {}",
                             text.size(), kMinSecretBytes, path));
  }
  return text;
}

}  // namespace

JobKey shared_key(const Knobs& knobs, const Address& address) {
  JobKey key;
  if (!knobs.secret_file.empty()) {
    const std::string secret = "horovod job key " + read_secret(knobs.secret_file);
    unsigned size = 0;
    const int done =
        EVP_Digest(secret.data(), secret.size(), reinterpret_cast<unsigned char*>(key.bytes.data()),
                   &size, EVP_sha256(), nullptr);
    if (done != 1 || size != key.bytes.size()) fail(Code::internal, "SHA-256 failed");
    return key;
  }
  if (!knobs.no_secret) {
    fail(Code::unauthorized,
         fmt::format("the ranks meet at {}, which other machines may reach too, and have no secret "
                     "to tell each other from strangers: make a file with `head -c 32 /dev/urandom "
                     "| base64 > F; chmod 600 F`, have it on all hosts, and set "
                     "HOROVOD_SECRET_FILE=F; or set HOROVOD_NO_SECRET=1 where nobody else can "
                     "reach these ports",
                     to_text(address)));
  }
  log(LogLevel::warning,
      fmt::format("HOROVOD_NO_SECRET=1: whoever reaches {} can join this job, read its tensors and "
                  "change them",
                  to_text(address)));
  return key;  // of zeros
}

}  // namespace hvd
