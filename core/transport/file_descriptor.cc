#include "core/transport/file_descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"

namespace hvd {
namespace {

// One bit per descriptor that a forked child closes. A fixed table of lock-free words, because the
// child of a multithreaded process may neither lock nor allocate. Relaxed order is sufficient: the
// forking thread sees its own writes, and concurrent writes of other threads cannot be ordered with
// fork() in any case.
std::array<std::atomic<uint64_t>, kMaxDescriptors / 64> closed_at_fork;
static_assert(std::atomic<uint64_t>::is_always_lock_free);

uint64_t bit_of(int fd) { return uint64_t{1} << (fd % 64); }

void close_all_in_child() {
  for (size_t word = 0; word < closed_at_fork.size(); ++word) {
    uint64_t bits = closed_at_fork[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      ::close(static_cast<int>(word * 64) + std::countr_zero(bits));
    }
  }
}

void install_fork_handler() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, close_all_in_child);
  if (installed != 0) fail(Code::internal, "pthread_atfork: no memory for a fork handler");
}

}  // namespace

FileDescriptor::FileDescriptor(int fd, AtFork at_fork) : fd_(fd), at_fork_(at_fork) {
  if (fd < 0 || at_fork == AtFork::keep) return;
  install_fork_handler();
  if (static_cast<size_t>(fd) >= kMaxDescriptors) {
    ::close(fd);
    fail(Code::internal, "more than 65536 open descriptors in this process");
  }
  closed_at_fork[static_cast<size_t>(fd) / 64].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

void FileDescriptor::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  if (at_fork_ == AtFork::close) {
    const auto word = static_cast<size_t>(fd) / 64;
    const uint64_t before = closed_at_fork[word].fetch_and(~bit_of(fd), std::memory_order_relaxed);
    if ((before & bit_of(fd)) == 0)
      return;  // a forked child: already closed, and the number may be in use again
  }
  ::close(fd);
}

FileDescriptor duplicate(int fd) {
  FileDescriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) fail_errno("fcntl");
  return copy;
}

}  // namespace hvd
