#include "core/transport/process_poll.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/base/error.h"
#include "core/base/process_tree.h"
#include "core/base/start_thread.h"

namespace hvd {
namespace {

constexpr int kPeriodMilliseconds = 20;
constexpr size_t kMaxStatBytes = 1024;  // 52 fields, the longest of which have 20 digits

/// `stat` is an open /proc/<pid>/stat. It belongs to the process and not to its PID: if the PID is
/// reused, reading fails.
bool runs(const FileDescriptor& stat) {
  std::array<char, kMaxStatBytes> text;
  const ssize_t size = ::pread(stat.get(), text.data(), text.size(), 0);
  if (size < 0) return errno != ESRCH;  // it has been reaped
  return shows_running({text.data(), static_cast<size_t>(size)});
}

/// Closes `end`, which makes the other end readable, when the process has ended.
void watch(const FileDescriptor stat, const FileDescriptor end) {
  pollfd readers{end.get(), 0, 0};  // an error is reported once all of them are closed
  while (runs(stat) && ::poll(&readers, 1, kPeriodMilliseconds) == 0) {
  }
}

}  // namespace

bool shows_running(std::string_view stat) {
  ProcessStat found;
  if (!parse_stat(stat, found) || !found.threads) return true;
  return (found.state != 'Z' && found.state != 'X') || *found.threads > 1;
}

FileDescriptor poll_process(pid_t pid) {
  if (!processes_are_visible())
    fail(Code::internal,
         fmt::format("cannot watch process {}: there is no pidfd_open (Linux 5.3, and in a "
                     "container a seccomp profile that allows it), and /proc does not show the "
                     "processes of this PID namespace: mount it (mount -t proc proc /proc)",
                     pid));
  FileDescriptor stat(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!stat && errno == ENOENT) errno = ESRCH;
  if (!stat) fail_errno(fmt::format("watching process {}", pid));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("pipe");
  FileDescriptor reading(ends[0]), writing(ends[1]);
  start_thread([stat = std::move(stat), end = std::move(writing)]() mutable {
    watch(std::move(stat), std::move(end));
  }).detach();
  return reading;
}

}  // namespace hvd
