// For tests: simulates a kernel that lacks system calls, or a container that forbids them.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>

namespace hvd::test {

/// System calls first to last, which fail with `error`: ENOSYS as from a kernel without them, or
/// EPERM as from a container that forbids them.
struct RefusedCalls {
  long first = 0;
  long last = 0;
  int error = ENOSYS;
};

/// Calls are numbered in the order of their arrival, and rseq is the last one of Linux 4.18.
inline constexpr long kFirstCallAfterLinux418 = SYS_rseq + 1;
inline constexpr long kLastCall = 1023;

/// The calls that Linux 4.18 lacks.
inline RefusedCalls newer_than_linux_4_18(int error) {
  return {kFirstCallAfterLinux418, kLastCall, error};
}

/// Applies to this process and its later children. Returns false if seccomp filters are not
/// allowed. clone3 is always missing if it is refused: libc starts no thread after an EPERM.
inline bool refuse(const RefusedCalls& calls) {
  const auto first = static_cast<uint32_t>(calls.first), last = static_cast<uint32_t>(calls.last);
  std::array<sock_filter, 7> program{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2),
       BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 2, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(calls.error)),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Returns the result of `answer` in a forked child without those calls; nullopt if seccomp filters
/// are not allowed. An exception ends the child: false.
inline std::optional<bool> without(const RefusedCalls& calls, const std::function<bool()>& answer) {
  constexpr int kNo = 1, kNoFilter = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!refuse(calls)) ::_exit(kNoFilter);
    const auto answer_or_abort = [&]() noexcept { return answer(); };
    ::_exit(answer_or_abort() ? 0 : kNo);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return false;
  if (WEXITSTATUS(status) == kNoFilter) return std::nullopt;
  return WEXITSTATUS(status) == 0;
}

/// The same for one call, which is missing.
inline std::optional<bool> without(long number, const std::function<bool()>& answer) {
  return without(RefusedCalls{.first = number, .last = number}, answer);
}

}  // namespace hvd::test
