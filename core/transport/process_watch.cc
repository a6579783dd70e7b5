#include "core/transport/process_watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/process_tree.h"
#include "core/transport/process_poll.h"

namespace hvd {
namespace {

/// Debian 12 has no C++ wrapper for this system call; the descriptor is close-on-exec by default.
FileDescriptor pidfd_of(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// Returns whether pidfd_open is missing (before Linux 5.3) or forbidden: seccomp profiles of
/// containers answer EPERM or EACCES to calls that they do not know.
bool is_refused(int error) { return error == ENOSYS || error == EPERM || error == EACCES; }

/// A pipe that is closed when this process ends: no data is written to it, and forked children do
/// not inherit it.
struct Lifeline {
  std::mutex mutex;
  pid_t process = 0;
  FileDescriptor reading, writing;
};

/// Returns another descriptor of the read end. A forked child makes a new pipe.
FileDescriptor read_lifeline() {
  static Lifeline& line =
      *new Lifeline;  // never destroyed: closing it signals the end of the process
  const std::lock_guard lock(line.mutex);
  if (std::exchange(line.process, ::getpid()) != ::getpid()) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("pipe");
    line.reading = FileDescriptor(ends[0]);
    line.writing = FileDescriptor(ends[1]);
  }
  return duplicate(line.reading.get());
}

/// The PID in this PID namespace; 0 if `process` is no pidfd or the process is not visible here.
pid_t pid_of(const FileDescriptor& process) {
  std::ifstream info(fmt::format("/proc/self/fdinfo/{}", process.get()));
  for (std::string name; info >> name;) {
    pid_t pid = 0;
    if (name == "Pid:" && info >> pid) return std::max(pid, 0);
  }
  return 0;
}

}  // namespace

FileDescriptor open_process(pid_t pid) {
  FileDescriptor process = pidfd_of(pid);
  if (process) return process;
  if (is_refused(errno)) return poll_process(pid);
  fail_errno(fmt::format("watching process {}", pid));
}

FileDescriptor open_own_process() {
  FileDescriptor process = pidfd_of(::getpid());
  return process ? std::move(process) : read_lifeline();
}

bool has_ended(const FileDescriptor& process) {
  pollfd watched{process.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0;
}

std::optional<char> state_of_process(const FileDescriptor& process) {
  const pid_t pid = pid_of(process);
  if (pid == 0) return std::nullopt;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  ProcessStat stat;
  if (!std::getline(file, line) || !parse_stat(line, stat)) return std::nullopt;
  if (has_ended(process)) return std::nullopt;  // another process may have its PID
  return stat.state;
}

bool has_replaced_itself(const FileDescriptor& process, std::string_view file) {
  const pid_t pid = pid_of(process);
  if (pid == 0 || open_file_of(pid, file) != "") return false;
  // If /proc did not show such files, it would not show that of this process either.
  return !open_file_of(::getpid(), file).value_or("").empty() && !has_ended(process);
}

}  // namespace hvd
