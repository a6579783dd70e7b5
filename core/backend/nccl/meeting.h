// What the ranks of a group tell each other at its first batch on GPUs, and what follows from it:
// whether NCCL moves its tensors, or else whether they may share memory. Pure, so every rank comes
// to the same result.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/device/nccl_api.h"

namespace hvd::nccl {

/// A text of limited length, with its end.
template <size_t kBytes>
struct ShortText {
  std::array<char, kBytes> characters{};

  void set(const std::string& text) {
    characters = {};
    text.copy(characters.data(), kBytes - 1);
  }
  std::string get() const { return characters.data(); }
};

/// The facts of one rank, exchanged as bytes.
struct Card {
  device::UniqueId id{};       ///< the first rank: of the communicator to be made
  device::UniqueId host_id{};  ///< the first rank of a host, in levels: of that of its ranks
  int32_t nccl_version = 0;    ///< 0: this rank has no NCCL
  int32_t has_gpu = 0;         ///< 0: this rank has joined and never had a GPU tensor
  int32_t may_share = 0;       ///< NCCL_MULTI_RANK_GPU_ENABLE=1
  ShortText<52> uuid{};
  ShortText<24> bus_id{};
  ShortText<64> host{};
  ShortText<64> visible{};  ///< CUDA_VISIBLE_DEVICES
};

struct Decision {
  bool by_nccl = false;
  bool is_final = true;           ///< if not, the ranks meet again at the next batch
  bool may_share_memory = false;  ///< not by_nccl: all ranks are on one host
  std::string why{};              ///< not by_nccl: why not, unless each rank has said so
  std::string error{};            ///< why the job cannot go on
};

/// What the ranks of a job have agreed on.
struct DecisionRules {
  GpuOperationsChoice choice = GpuOperationsChoice::automatic;  ///< or nccl
  bool encrypt = false;  ///< what leaves a host is encrypted, which NCCL cannot do
};

/// `cards` [size], of the global `ranks`.
Decision decide(std::span<const Card> cards, const std::vector<int>& ranks, DecisionRules rules);

}  // namespace hvd::nccl
