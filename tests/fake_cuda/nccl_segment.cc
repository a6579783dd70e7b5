#include "tests/fake_cuda/nccl_segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/fake_cuda/settings.h"

namespace fake {

void pause_briefly() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

Segment::Segment(const hvd::device::UniqueId& id, int rank, int size)
    : rank_(rank), size_(size), name_(id.bytes) {
  if (size > kMaxRanks) misuse("more than 16 ranks are not simulated");
  const int file = ::shm_open(name_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  // Zeros are a valid beginning, so it does not matter which rank is first.
  if (file >= 0 && ::ftruncate(file, sizeof(SegmentMemory)) == 0)
    memory = ::mmap(nullptr, sizeof(SegmentMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) misuse("no shared memory for a communicator");
  memory_ = static_cast<SegmentMemory*>(memory);
}

Segment::~Segment() {
  ::shm_unlink(name_.c_str());  // the others have mapped it, or never come
  ::munmap(memory_, sizeof(SegmentMemory));
}

void Segment::join(int version, int gpu) {
  if (own().joined.load(std::memory_order_acquire) != 0)
    misuse("rank " + std::to_string(rank_) + " exists already in this communicator");
  own().version = version;
  own().gpu = gpu;
  own().process = ::getpid();
  own().joined.store(1, std::memory_order_release);
}

bool Segment::all_joined() const {
  for (int rank = 0; rank < size_; ++rank)
    if (memory_->parts[rank].joined.load(std::memory_order_acquire) == 0) return false;
  ::shm_unlink(name_.c_str());
  return true;
}

std::string Segment::misfit(bool shared_gpus_allowed) const {
  for (int rank = 0; rank < size_; ++rank) {
    const RankPart& one = memory_->parts[rank];
    if (one.version != memory_->parts[0].version)
      return "mismatched versions of NCCL in rank 0 and rank " + std::to_string(rank);
    for (int other = 0; other < rank && !shared_gpus_allowed; ++other)
      if (memory_->parts[other].gpu == one.gpu)
        return "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
               std::to_string(rank) + " both on CUDA device " + std::to_string(one.gpu);
  }
  return "";
}

bool Segment::all_leaving() const {
  for (int rank = 0; rank < size_; ++rank)
    if (memory_->parts[rank].leaving.load(std::memory_order_acquire) == 0) return false;
  return true;
}

bool Segment::peer_is_lost() const {
  for (int rank = 0; rank < size_; ++rank) {
    const RankPart& one = memory_->parts[rank];
    if (rank == rank_ || one.joined.load(std::memory_order_acquire) == 0) continue;
    const bool left = one.leaving.load(std::memory_order_acquire) != 0;
    if (!left && ::kill(one.process, 0) != 0) return true;
    if (one.ended.load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

bool Segment::barrier(const std::function<bool()>& given_up) {
  own().arrived.store(++barriers_, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank) {
    while (part(rank).arrived.load(std::memory_order_acquire) < barriers_) {
      if (given_up()) return false;
      pause_briefly();
    }
  }
  return true;
}

}  // namespace fake
