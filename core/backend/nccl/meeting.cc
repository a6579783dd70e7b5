#include "core/backend/nccl/meeting.h"

#include <algorithm>

#include "core/device/messages.h"

namespace hvd::nccl {
namespace {

/// From this version on, NCCL can have several ranks on one GPU.
constexpr int kSharingNccl = 23000;

std::string staged_text(const std::string& why) {
  return why + ". Until then, GPU tensors are copied through host memory, which is slower";
}

bool may_share(const Card& card) {
  return card.nccl_version >= kSharingNccl && card.may_share != 0;
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

}  // namespace

Decision decide(std::span<const Card> cards, const std::vector<int>& ranks,
                GpuOperationsChoice choice) {
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
  const std::string why = lacking ? differing : sharing;
  if (lacking && why.empty()) return {};  // no rank has it, and each has said so
  if (why.empty()) return {.by_nccl = true};
  if (choice == GpuOperationsChoice::nccl) return {.error = why};
  return {.warning = staged_text(why)};
}

}  // namespace hvd::nccl
