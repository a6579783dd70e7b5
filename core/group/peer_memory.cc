#include "core/group/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <mutex>
#include <span>

#include "core/base/bytes.h"
#include "core/transport/handshake.h"

namespace hvd {
namespace {

/// `call` is process_vm_readv or process_vm_writev, which may transfer only a part. Returns 0 or
/// errno.
template <class Call>
int transfer(Call call, pid_t process, std::byte* here, uint64_t there, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec own{here + done, bytes - done};
    const iovec others{reinterpret_cast<void*>(there + done), bytes - done};
    const ssize_t moved = call(process, &own, 1, &others, 1, 0);
    if (moved <= 0) return moved == 0 ? EFAULT : errno;
    done += static_cast<size_t>(moved);
  }
  return 0;
}

int read_from(pid_t process, std::byte* to, uint64_t from, size_t bytes) {
  return transfer(&::process_vm_readv, process, to, from, bytes);
}

int write_to(pid_t process, uint64_t to, const std::byte* from, size_t bytes) {
  // The kernel only reads the iovec here.
  return transfer(&::process_vm_writev, process, const_cast<std::byte*>(from), to, bytes);
}

/// Never freed. Thread-safe.
uint64_t& new_number() {
  static std::mutex mutex;
  static std::deque<uint64_t>& numbers = *new std::deque<uint64_t>;
  const std::lock_guard lock(mutex);
  uint64_t& number = numbers.emplace_back();
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace

PeerMemory::PeerMemory(int local_ranks)
    : processes_(static_cast<size_t>(local_ranks)), number_(new_number()) {}

PeerMemory::Invitation PeerMemory::invitation() const {
  return {::getpid(), reinterpret_cast<uint64_t>(&number_), number_};
}

bool PeerMemory::accept(int rank, const Invitation& invitation) {
  const auto process = static_cast<pid_t>(invitation.process);
  uint64_t number = 0;
  auto* const own = reinterpret_cast<std::byte*>(&number);
  if (read_from(process, own, invitation.address, sizeof(number)) != 0) return false;
  if (number != invitation.number) return false;
  if (write_to(process, invitation.address, own, sizeof(number)) != 0) return false;
  processes_[static_cast<size_t>(rank)] = process;
  return true;
}

int PeerMemory::read(int rank, std::byte* to, uint64_t from, size_t bytes) const {
  return read_from(processes_[static_cast<size_t>(rank)], to, from, bytes);
}

int PeerMemory::write(int rank, uint64_t to, const std::byte* from, size_t bytes) const {
  return write_to(processes_[static_cast<size_t>(rank)], to, from, bytes);
}

}  // namespace hvd
