// Reads and writes what the other processes of this host have in memory of their own: the kernel
// copies it (process_vm_readv and process_vm_writev, Linux 3.2), once, where a way through shared
// memory takes two copies. Belongs to whoever reads and writes.
//
// The kernel allows it between processes of one user, unless that was forbidden: by Yama
// (kernel.yama.ptrace_scope), by the seccomp profile of a container, or by a process namespace of
// its own for each rank. Nothing here asks for more than is allowed; ranks try, and tell each
// other.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

/// Ranks are local ranks. Driven by one thread.
class PeerMemory {
 public:
  /// What a rank tells the others so that they can try its memory.
  struct Invitation {
    int64_t process = 0;
    uint64_t address = 0;  ///< of what `number` says
    uint64_t number = 0;   ///< drawn by chance: another process has another one there
  };

  explicit PeerMemory(int local_ranks);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Of this rank. Good as long as its process lives, since a peer may come late to write the
  /// number back.
  Invitation invitation() const;
  /// Whether the memory of `rank` can be read and written, as it turns out now: the number is read,
  /// and written back.
  bool accept(int rank, const Invitation& invitation);

  /// Copies from, and to, memory of `rank`, whose accept() has said yes. 0, or errno: ESRCH when
  /// its process has ended.
  [[nodiscard]] int read(int rank, std::byte* to, uint64_t from, size_t bytes) const;
  [[nodiscard]] int write(int rank, uint64_t to, const std::byte* from, size_t bytes) const;

 private:
  std::vector<pid_t> processes_;
  uint64_t& number_;
};

}  // namespace hvd
