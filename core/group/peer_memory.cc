#include "core/group/peer_memory.h"

#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/error.h"
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

PeerMemory::PeerMemory(std::vector<int> ranks)
    : ranks_(std::move(ranks)), processes_(ranks_.size()) {
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
  processes_[static_cast<size_t>(rank)] = process;
  return number == invitation.number;
}

void PeerMemory::read(int rank, std::byte* to, uint64_t from, size_t bytes) const {
  const auto index = static_cast<size_t>(rank);
  const int error = read_from(processes_[index], to, from, bytes);
  if (error == 0) return;
  fail(Code::peer_lost,
       fmt::format("rank {} is lost: its memory can no longer be read: {}", ranks_[index],
                   std::generic_category().message(error)),
       ranks_[index]);
}

}  // namespace hvd
