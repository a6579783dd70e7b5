#include "core/group/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "core/base/bytes.h"
#include "core/transport/handshake.h"

namespace hvd {
namespace {

/// 0, or the errno by which it has failed. The kernel may stop in the middle.
int read_from(pid_t process, std::byte* to, uint64_t from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec here{to + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(from + done), bytes - done};
    const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got <= 0) return got == 0 ? EFAULT : errno;
    done += static_cast<size_t>(got);
  }
  return 0;
}

}  // namespace

PeerMemory::PeerMemory(int local_ranks) : processes_(static_cast<size_t>(local_ranks)) {
  fill_random(std::as_writable_bytes(std::span(&number_, 1)));
}

PeerMemory::Invitation PeerMemory::invitation() const {
  return {::getpid(), reinterpret_cast<uint64_t>(&number_), number_};
}

bool PeerMemory::accept(int rank, const Invitation& invitation) {
  const auto process = static_cast<pid_t>(invitation.process);
  uint64_t number = 0;
  auto* const to = reinterpret_cast<std::byte*>(&number);
  if (read_from(process, to, invitation.address, sizeof(number)) != 0) return false;
  if (number != invitation.number) return false;
  processes_[static_cast<size_t>(rank)] = process;
  return true;
}

int PeerMemory::read(int rank, std::byte* to, uint64_t from, size_t bytes) const {
  return read_from(processes_[static_cast<size_t>(rank)], to, from, bytes);
}

}  // namespace hvd
