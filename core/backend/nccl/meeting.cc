#include "core/backend/nccl/meeting.h"

#include <algorithm>

#include "core/device/kernels/sources.h"
#include "core/device/messages.h"

namespace hvd::nccl {
namespace {

/// From this version on, NCCL can have several ranks on one GPU.
constexpr int kSharingNccl = 23000;

bool may_share(const Card& card) {
  return card.nccl_version >= kSharingNccl && card.may_share != 0;
}

bool are_on_one_host(std::span<const Card> cards) {
  const auto is_here = [&](const Card& card) { return card.host.get() == cards[0].host.get(); };
  return cards.size() > 1 && cards.size() <= device::kMaxSources &&
         std::ranges::all_of(cards, is_here);
}

std::string shared_gpus(std::span<const Card> cards, const std::vector<int>& ranks) {
  std::vector<device::RankGpu> gpus;
  for (size_t i = 0; i < cards.size(); ++i) {
    const Card& card = cards[i];
    gpus.push_back(
        {ranks[i], card.host.get(), card.uuid.get(), card.bus_id.get(), card.visible.get()});
  }
  return device::shared_gpu_text(gpus);
}

constexpr const char* kNotEncrypted =
    "unset HOROVOD_TLS to let NCCL, which does not encrypt, send GPU tensors to other hosts";

}  // namespace

Decision decide(std::span<const Card> cards, const std::vector<int>& ranks, DecisionRules rules) {
  const auto without_gpu = [](const Card& card) { return card.has_gpu == 0; };
  if (std::ranges::any_of(cards, without_gpu)) return {.is_final = false};
  std::vector<device::RankNccl> versions;
  for (size_t i = 0; i < cards.size(); ++i) versions.push_back({ranks[i], cards[i].nccl_version});
  const std::string differing = device::different_nccl_text(versions);
  const auto without_nccl = [](const Card& card) { return card.nccl_version == 0; };
  const bool lacking = std::ranges::any_of(cards, without_nccl);
  if (!differing.empty() && !lacking) return {.error = differing};
  const std::string sharing =
      std::ranges::all_of(cards, may_share) ? "" : shared_gpus(cards, ranks);
  const bool crosses = rules.encrypt && !std::ranges::all_of(cards, [&](const Card& card) {
                         return card.host.get() == cards.front().host.get();
                       });
  const std::string why = lacking ? differing : crosses ? kNotEncrypted : sharing;
  const bool is_missing = lacking && why.empty();  // on all ranks, and each has said so
  if (why.empty() && !is_missing) return {.by_nccl = true};
  if (rules.choice == GpuOperationsChoice::nccl && !is_missing) return {.error = why};
  return {.may_share_memory = are_on_one_host(cards), .why = why};
}

}  // namespace hvd::nccl
