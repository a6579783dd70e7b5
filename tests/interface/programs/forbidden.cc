// One rank, `argv[1]`, is not allowed to read other processes: calls on a group go another way on
// all ranks, and give the same.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <horovod/horovod.hpp>
#include <vector>

/// As a container's seccomp profile does.
bool forbid_reading() {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool may_read() {
  int from = 1, to = 0;
  const iovec here{&to, sizeof to}, there{&from, sizeof from};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof to);
}

int main(int, char** argv) {
  hvd::Context job;
  const bool forbidden = job.rank() == std::atoi(argv[1]);
  if (forbidden && !forbid_reading()) return 1;
  std::printf("%s\n", may_read() ? "may read" : "may not read");
  hvd::Group group;
  std::vector<int> own(50'000), all(own.size() * static_cast<std::size_t>(group.size()));
  for (int turn = 0; turn < 30; ++turn) {
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = turn + group.rank() * 1000 + static_cast<int>(i % 7);
    group.allgather(own, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto rank = static_cast<int>(i / own.size());
      if (all[i] != turn + rank * 1000 + static_cast<int>(i % own.size() % 7)) return 2;
    }
  }
  return 0;
}
