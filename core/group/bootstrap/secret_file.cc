#include "core/group/bootstrap/secret_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

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

std::string read_secret(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) refuse(path, std::generic_category().message(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("fstat");
  if (!S_ISREG(status.st_mode)) refuse(path, "it is no file");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(path, fmt::format("others may read or write it: chmod 600 {}", path));
  std::string text(kMaxSecretBytes, '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  if (count < 0) refuse(path, std::generic_category().message(errno));
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
