// A Group whose ranks share one host's memory: publishing is a store, viewing is reading where the
// peer wrote.
#pragma once

#include <vector>

#include "core/group/group.h"
#include "core/group/staging.h"

namespace hvd {

/// Any ranks of the host, this one among them. Groups may overlap. The Staging outlives it.
class ShmGroup final : public Group {
 public:
  /// `members[i]` is the local rank of the group's rank i.
  ShmGroup(Staging& staging, std::vector<int> members);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool shared_memory() const override { return true; }
  size_t unit_bytes() const override { return staging_.unit_bytes(); }
  /// Half of the slots, so that a unit seldom goes where one has just been read.
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
  std::vector<int> members_;
  int rank_;
  std::vector<int> readers_;  ///< of the unit being published; kept for its capacity
};

}  // namespace hvd
