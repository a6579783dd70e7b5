// In-memory Links for tests and the simulator: a pair with a bounded buffer per direction.
// Transfers can be split at random lengths, and the pair can be broken.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/transport/link.h"

namespace hvd {

struct MemLinkOptions {
  size_t capacity = 64 * KiB;  ///< bytes in transit,
  uint64_t split_seed = 0;     ///< not 0: seed for splitting every transfer at a random length
  int first_rank = 0;
  int second_rank = 1;
};

/// The two ends may be used by two threads. When one end is destroyed, the other reports a loss
/// after reading the remaining bytes.
class MemLink final : public Link {
 public:
  static std::pair<std::unique_ptr<MemLink>, std::unique_ptr<MemLink>> make_pair(
      const MemLinkOptions& options);
  ~MemLink() override;

  size_t send_some(ConstBytes bytes) override;
  size_t receive_some(MutableBytes room) override;
  int fd() const override { return -1; }

  /// Bytes that have arrived at this end.
  size_t available() const;
  /// Breaks the connection: both ends report a loss, and bytes in transit are dropped.
  void break_now();

 private:
  struct Wire;
  MemLink(std::shared_ptr<Wire> wire, int side) : wire_(std::move(wire)), side_(side) {}

  std::shared_ptr<Wire> wire_;  ///< shared with the other end; holds the bytes in transit
  int side_;
};

}  // namespace hvd
