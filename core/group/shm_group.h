// A Group over the shared memory of one host: publish() is a store, view() returns the peer's
// buffer.
#pragma once

#include <vector>

#include "core/group/group.h"
#include "core/group/staging.h"

namespace hvd {

/// A group of any ranks of the host that include this rank. Groups may overlap. The Staging must
/// outlive it.
class ShmGroup final : public Group {
 public:
  /// `members[i]` is the local rank of group rank i. `eager_buffers`: those of the segment if the
  /// group has all ranks of the host, else nullptr; they must outlive it.
  ShmGroup(Staging& staging, std::vector<int> members, EagerBuffers* eager_buffers = nullptr);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool shared_memory() const override { return true; }
  EagerBuffers* eager_buffers() const override { return eager_buffers_; }
  size_t unit_bytes() const override { return staging_.unit_bytes(); }
  /// Half of the slots, so that a unit is seldom written where one has just been read.
  uint32_t units_in_flight() const override { return staging_.slots() / 2; }

  std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes) override;
  void fill(std::byte* to, const std::byte* from, size_t bytes) override {
    staging_.fill(to, from, bytes);
  }
  void publish(Ticket ticket, std::span<const Parcel> parcels) override;
  std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) override;
  void release(Ticket ticket) override;
  bool pump() override { return false; }

 private:
  Staging& staging_;
  EagerBuffers* const eager_buffers_;
  std::vector<int> members_;
  int rank_;
  std::vector<int> readers_;  ///< of the unit being published; member to reuse its capacity
};

}  // namespace hvd
