#include "core/group/host_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/shm_link.h"

namespace hvd {
namespace {

constexpr uint64_t kMagic = 0x6d67'6573'6476'6821;  // the first word of every segment
constexpr uint32_t kVersion = 7;                    // version 6 had no JobState
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// The header, at offset 0 of the segment.
struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t generation;
  SegmentLayout layout;
};

constexpr size_t kJobStateOffset = 2 * kCacheLine;
static_assert(sizeof(SegmentHeader) <= kJobStateOffset && kNoRank == -1);

[[noreturn]] void refuse(const std::string& why) {
  fail(Code::internal, "cannot use the shared memory of this host: " + why +
                           "; to run without it, set HOROVOD_TRANSPORT=tcp on all ranks");
}

[[noreturn]] void refuse_errno(const std::string& doing, int error) {
  refuse(doing + ": " + std::generic_category().message(error));
}

/// The permanent mapping at full size. The file cannot shrink later, which would cause a SIGBUS.
MutableBytes map(int fd, size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) refuse_errno("mmap of " + std::to_string(bytes) + " bytes", errno);
  // Prevents forked data loaders from keeping the memory; if it fails, they keep it.
  ::madvise(memory, bytes, MADV_DONTFORK);
  return {static_cast<std::byte*>(memory), bytes};
}

FileDescriptor allocate(size_t bytes) {
  FileDescriptor fd(
      ::memfd_create(std::string(kSegmentFile).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refuse_errno("memfd_create (Linux 3.17)", errno);
  // ftruncate alone succeeds even if there is no memory; the first access would then cause a
  // SIGBUS.
  int error = 0;
  do {
    error = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != 0) refuse_errno("allocating " + std::to_string(bytes) + " bytes", error);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) refuse_errno("F_ADD_SEALS", errno);
  return fd;
}

void make_content(MutableBytes memory, const SegmentLayout& layout, uint32_t generation) {
  for (uint32_t r = 0; r < layout.local_ranks; ++r) {
    const int rank = static_cast<int>(r);
    const size_t ring = ring_memory_bytes(layout.ring_bytes);
    new (memory.data() + layout.state_offset(rank)) RankState();
    make_ring(memory.subspan(layout.ring_to_leader_offset(rank), ring));
    make_ring(memory.subspan(layout.ring_from_leader_offset(rank), ring));
    if (layout.eager_bytes > 0) EagerBuffers::make(memory.data() + layout.eager_offset(rank));
  }
  new (memory.data() + kJobStateOffset) JobState();
  new (memory.data()) SegmentHeader{kMagic, kVersion, generation, layout};
}

/// The memory, initialized by local rank 0.
MutableBytes prepared(MutableBytes memory, const SegmentLayout& layout, uint32_t generation,
                      int local_rank) {
  HVD_ASSERT(memory.size() == layout.total_bytes());
  HVD_ASSERT(local_rank >= 0 && local_rank < static_cast<int>(layout.local_ranks));
  if (local_rank == 0) make_content(memory, layout, generation);
  return memory;
}

std::vector<RankState*> states_in(MutableBytes memory, const SegmentLayout& layout) {
  std::vector<RankState*> states;
  for (uint32_t r = 0; r < layout.local_ranks; ++r) {
    std::byte* at = memory.data() + layout.state_offset(static_cast<int>(r));
    states.push_back(reinterpret_cast<RankState*>(at));
  }
  return states;
}

std::vector<MutableBytes> areas_in(MutableBytes memory, const SegmentLayout& layout) {
  std::vector<MutableBytes> areas;
  for (uint32_t r = 0; r < layout.local_ranks; ++r) {
    areas.push_back(
        memory.subspan(layout.staging_offset(static_cast<int>(r)), layout.staging_bytes()));
  }
  return areas;
}

}  // namespace

std::unique_ptr<HostSegment> HostSegment::create(const SegmentLayout& layout, uint32_t generation) {
  FileDescriptor fd = allocate(layout.total_bytes());
  const MutableBytes memory = map(fd.get(), layout.total_bytes());
  return std::unique_ptr<HostSegment>(
      new HostSegment(std::move(fd), memory, layout, generation, 0));
}

std::unique_ptr<HostSegment> HostSegment::open(FileDescriptor fd, const SegmentLayout& layout,
                                               uint32_t generation, int local_rank) {
  HVD_ASSERT(local_rank > 0);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) refuse_errno("fstat", errno);
  if (facts.st_size != static_cast<off_t>(layout.total_bytes())) {
    refuse("it has " + std::to_string(facts.st_size) + " bytes, expected " +
           std::to_string(layout.total_bytes()));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) refuse("its size is not sealed");
  const MutableBytes memory = map(fd.get(), layout.total_bytes());
  std::unique_ptr<HostSegment> segment(
      new HostSegment(std::move(fd), memory, layout, generation, local_rank));
  segment->check_header(generation);
  return segment;
}

HostSegment::HostSegment(MutableBytes memory, const SegmentLayout& layout, uint32_t generation,
                         int local_rank)
    : HostSegment(FileDescriptor(), memory, layout, generation, local_rank) {
  check_header(generation);
}

HostSegment::HostSegment(FileDescriptor fd, MutableBytes memory, const SegmentLayout& layout,
                         uint32_t generation, int local_rank)
    : fd_(std::move(fd)),
      memory_(prepared(memory, layout, generation, local_rank)),
      layout_(layout),
      local_rank_(local_rank),
      job_(*reinterpret_cast<JobState*>(memory_.data() + kJobStateOffset)),
      doorbells_(states_in(memory_, layout_), local_rank),
      staging_(areas_in(memory_, layout_), layout_.slots, doorbells_, copy_) {
  if (layout_.eager_bytes == 0) return;
  std::vector<std::byte*> areas;
  for (int rank = 0; rank < local_ranks(); ++rank)
    areas.push_back(memory_.data() + layout_.eager_offset(rank));
  const EagerBuffers::Sizes sizes{layout_.eager_bytes, layout_.eager_ring_bytes};
  eager_buffers_.emplace(std::move(areas), sizes, doorbells_, copy_);
}

HostSegment::~HostSegment() {
  if (fd_) ::munmap(memory_.data(), memory_.size());
}

void HostSegment::check_header(uint32_t generation) const {
  SegmentHeader header;
  std::memcpy(&header, memory_.data(), sizeof(header));
  if (header.magic != kMagic) refuse("it is not a segment of this runtime");
  if (header.version != kVersion) {
    refuse("it has version " + std::to_string(header.version) + ", expected " +
           std::to_string(kVersion));
  }
  if (header.generation != generation) {
    refuse("it belongs to generation " + std::to_string(header.generation) + ", expected " +
           std::to_string(generation));
  }
  if (header.layout != layout_) refuse("its leader laid it out for other settings");
}

void HostSegment::report_loss(int rank) {
  HVD_ASSERT(rank >= 0);
  int32_t none = 0;
  if (job_.lost.compare_exchange_strong(none, rank + 1, std::memory_order_seq_cst))
    doorbells_.wake_others();
}

std::unique_ptr<Link> HostSegment::control_link(int local_peer, int peer) {
  const bool leads = local_rank_ == 0;
  HVD_ASSERT(local_peer != local_rank_ && (leads || local_peer == 0));
  const int other = leads ? local_peer : local_rank_;  // the one that is not the leader
  const size_t bytes = ring_memory_bytes(layout_.ring_bytes);
  const MutableBytes up = memory_.subspan(layout_.ring_to_leader_offset(other), bytes);
  const MutableBytes down = memory_.subspan(layout_.ring_from_leader_offset(other), bytes);
  return std::make_unique<ShmLink>(RingWriter(leads ? down : up), RingReader(leads ? up : down),
                                   peer, [this, local_peer] { doorbells_.wake(local_peer); });
}

}  // namespace hvd
