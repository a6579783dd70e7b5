// For tests: a kernel that lacks a system call.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>

namespace hvd::testing {

/// From here on this process has no such call, nor have those that it forks. False where filters
/// are not allowed.
inline bool forbid(long number) {
  std::array<sock_filter, 4> program{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// What `answer` says in a forked child without that call; none where filters are not allowed.
inline std::optional<bool> without(long number, const std::function<bool()>& answer) {
  constexpr int kNo = 1, kNoFilter = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forbid(number)) ::_exit(kNoFilter);
    ::_exit(answer() ? 0 : kNo);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return false;
  if (WEXITSTATUS(status) == kNoFilter) return std::nullopt;
  return WEXITSTATUS(status) == 0;
}

}  // namespace hvd::testing
