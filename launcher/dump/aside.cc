#include "launcher/dump/aside.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "core/base/bytes.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/socket.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxTextBytes = 4 * MiB;

/// The standard descriptors of the parent stay out of a child that may outlive it.
[[noreturn]] void work_and_end(const std::function<void()>& work, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const FileDescriptor nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nowhere.get(), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(nowhere.get(), STDERR_FILENO);
  work();
  _exit(0);
}

std::string text_until(const FileDescriptor& in, TimePoint deadline) {
  std::string text;
  std::array<char, 16 * KiB> bytes;
  while (text.size() < kMaxTextBytes && wait_until_ready(in.get(), POLLIN, deadline)) {
    const ssize_t size = read(in.get(), bytes.data(), bytes.size());
    if (size <= 0) break;
    text.append(bytes.data(), static_cast<size_t>(size));
  }
  return text;
}

}  // namespace

std::string output_of(const std::function<void()>& work, TimePoint deadline) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1], AtFork::keep);
  const pid_t child = fork();
  if (child == 0) work_and_end(work, theirs.get());
  if (child < 0) return {};
  theirs.reset();
  std::string text = text_until(ours, deadline);
  kill(child, SIGKILL);
  waitpid(child, nullptr, WNOHANG);
  return text;
}

}  // namespace hvd::launcher
