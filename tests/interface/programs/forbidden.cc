// One rank, `argv[1]`, is not allowed to read other processes, or to write to them (`argv[2]`:
// read, write): calls on a group go another way on all ranks, and give the same.
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
#include <string_view>
#include <vector>

/// As a container's seccomp profile does.
bool forbid(unsigned system_call) {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// `call`: process_vm_readv or process_vm_writev.
template <class Call>
bool may(Call call) {
  int mine = 1, theirs = 0;
  const iovec here{&mine, sizeof mine}, there{&theirs, sizeof theirs};
  return call(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof mine);
}

int main(int, char** argv) {
  hvd::Context job;
  const bool forbidden = job.rank() == std::atoi(argv[1]);
  const bool reading = std::string_view(argv[2]) == "read";
  if (forbidden && !forbid(reading ? __NR_process_vm_readv : __NR_process_vm_writev)) return 1;
  std::printf("read: %s, write: %s\n", may(&process_vm_readv) ? "yes" : "no",
              may(&process_vm_writev) ? "yes" : "no");
  hvd::Group group;
  std::vector<int> own(50'000), all(own.size() * static_cast<std::size_t>(group.size()));
  std::vector<int> sums(own.size()), sent(own.size());
  for (int turn = 0; turn < 30; ++turn) {
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = turn + group.rank() * 1000 + static_cast<int>(i % 7);
    group.allgather(own, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto rank = static_cast<int>(i / own.size());
      if (all[i] != turn + rank * 1000 + static_cast<int>(i % own.size() % 7)) return 2;
    }
    sums = own;
    group.allreduce(sums, hvd::max);
    if (group.rank() == 0) sent = own;
    group.broadcast(sent, 0);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const int least = turn + static_cast<int>(i % 7);
      if (sums[i] != least + (group.size() - 1) * 1000 || sent[i] != least) return 2;
    }
  }
  return 0;
}
