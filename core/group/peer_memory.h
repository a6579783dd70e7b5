// Cross-memory attach (CMA): reads and writes the private memory of other processes of this host
// with process_vm_readv and process_vm_writev (Linux 3.2). A single copy by the kernel replaces the
// two copies through shared memory.
//
// The kernel permits CMA between processes of one user unless it is restricted by Yama
// (kernel.yama.ptrace_scope), the seccomp profile of a container, or separate PID namespaces. This
// code requests no privileges: ranks try CMA and share the result.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

/// Ranks are local ranks. Used by one thread.
class PeerMemory {
 public:
  /// What a rank publishes so that the other ranks can test access to its memory.
  struct Invitation {
    int64_t process = 0;
    uint64_t address = 0;  ///< address of a copy of `number`
    uint64_t number = 0;   ///< random, to detect a wrong process
  };

  explicit PeerMemory(int local_ranks);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Returns the invitation of this rank. Valid as long as its process lives, since peers may write
  /// the number back late.
  Invitation invitation() const;
  /// Tests access to the memory of `rank` by reading the number and writing it back; returns
  /// whether both work.
  bool accept(int rank, const Invitation& invitation);

  /// Copy from and to the memory of `rank`, for which accept() has returned true. Return 0 or
  /// errno: ESRCH if its process has ended.
  [[nodiscard]] int read(int rank, std::byte* to, uint64_t from, size_t bytes) const;
  [[nodiscard]] int write(int rank, uint64_t to, const std::byte* from, size_t bytes) const;

 private:
  std::vector<pid_t> processes_;
  uint64_t& number_;
};

}  // namespace hvd
