// Links in memory, for tests and the simulator: a pair with a bounded buffer each way, that can be
// told to move bytes in portions of random length and to break.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/transport/link.h"

namespace hvd {

struct MemLinkOptions {
  size_t capacity = 64 * KiB;  ///< bytes on the way, each direction
  uint64_t split_seed = 0;     ///< not 0: every transfer is cut at a random length drawn from it
  int first_rank = 0;
  int second_rank = 1;
};

/// The two ends may be used by two threads. Destroying an end is a loss for the other once it has
/// read what was sent.
class MemLink final : public Link {
 public:
  static std::pair<std::unique_ptr<MemLink>, std::unique_ptr<MemLink>> make_pair(
      const MemLinkOptions& options);
  ~MemLink() override;

  size_t send_some(ConstBytes bytes) override;
  size_t receive_some(MutableBytes room) override;
  int fd() const override { return -1; }

  /// Both ends are lost from now on, and so is what was on the way.
  void break_now();

 private:
  struct Wire;
  MemLink(std::shared_ptr<Wire> wire, int side) : wire_(std::move(wire)), side_(side) {}

  std::shared_ptr<Wire>
      wire_;  ///< shared with the other end: neither outlives the bytes on the way
  int side_;
};

}  // namespace hvd
