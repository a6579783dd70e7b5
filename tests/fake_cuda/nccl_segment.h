// The shared memory in which the ranks of a communicator of the stand-in NCCL meet. Every rank
// writes only its own part; a rank that is lost leaves the others waiting until they abort.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/device/nccl_api.h"

namespace fake {

inline constexpr int kMaxRanks = 16;
inline constexpr size_t kChunkBytes = 64 << 10;
inline constexpr size_t kMailBytes = 16 << 10;

/// A collective as a rank calls it. Zero-initialized fields do not apply.
struct Description {
  uint64_t number = 0;  ///< of the collective in its communicator
  int kind = 0;
  int root = 0;
  int op = 0;
  hvd::device::NcclType type = hvd::device::NcclType::uint8;
  uint64_t count = 0;
  bool operator==(const Description&) const = default;
};

/// What one rank shows to the others. Atomics: release by their rank, acquire by the others.
struct RankPart {
  std::atomic<uint64_t> joined;   ///< 1 when the fields below are written
  std::atomic<uint64_t> arrived;  ///< barriers that the rank has reached
  std::atomic<uint64_t> leaving;  ///< 1: finalized or destroyed
  std::atomic<uint64_t> ended;    ///< 1: aborted
  int version;
  int gpu;
  pid_t process;
  Description called;
  alignas(64) char chunk[kChunkBytes];
};

/// A message from one rank to another, in pieces.
struct Mailbox {
  std::atomic<uint64_t> written;  ///< pieces
  std::atomic<uint64_t> read;
  uint64_t message_bytes;
  uint64_t piece_bytes;
  alignas(64) char piece[kMailBytes];
};

struct SegmentMemory {
  RankPart parts[kMaxRanks];
  Mailbox mail[kMaxRanks][kMaxRanks];  ///< [from][to]
};

/// The view of one rank. Used by one thread at a time.
class Segment {
 public:
  Segment(const hvd::device::UniqueId& id, int rank, int size);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void join(int version, int gpu);
  bool all_joined() const;
  /// What a rank does when another version or the same GPU is found; empty: the ranks fit.
  std::string misfit(bool shared_gpus_allowed) const;
  bool all_leaving() const;
  /// Whether a process of the others has ended, or a rank has aborted.
  bool peer_is_lost() const;

  /// Waits until all ranks are here. Returns false if `given_up` becomes true before.
  bool barrier(const std::function<bool()>& given_up);

  RankPart& own() { return memory_->parts[rank_]; }
  RankPart& part(int rank) { return memory_->parts[rank]; }
  Mailbox& mail(int from, int to) { return memory_->mail[from][to]; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  const int rank_, size_;
  const std::string name_;
  SegmentMemory* memory_ = nullptr;
  uint64_t barriers_ = 0;
};

/// The pause of a loop that waits for other ranks.
void pause_briefly();

}  // namespace fake
