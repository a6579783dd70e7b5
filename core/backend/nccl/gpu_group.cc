#include "core/backend/nccl/gpu_group.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/backend/nccl/mover.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/gpu_info.h"

namespace hvd::nccl {
namespace {

// NCCL starts a thread for each.
const device::UniqueId& unique_id(const device::Nccl& nccl, std::optional<device::UniqueId>& made) {
  if (!made) nccl.check(nccl.call().get_unique_id(&made.emplace()), nullptr, "ncclGetUniqueId");
  return *made;
}

}  // namespace

std::unique_ptr<Run> GpuGroup::meet(Backend& host, GroupLevels& groups, const Batch& batch,
                                    const Gpu* gpu) {
  rank_ = groups.all->rank();
  if (state_ == State::cards) return exchange_cards(host, groups, batch, gpu);
  return ipc_meeting({.gpu = devices_.gpu(),
                      .place_bytes = options_.ipc_place_bytes,
                      .kind = options_.ipc_ranks,
                      .ranks = ranks_,
                      .rank = rank_,
                      .sequence = batch.sequence},
                     ipc_, answers_, host, groups);
}

std::unique_ptr<Run> GpuGroup::exchange_cards(Backend& host, GroupLevels& groups,
                                              const Batch& batch, const Gpu* gpu) {
  own_ = own_card(groups, gpu);
  cards_.assign(ranks_.size(), {});
  Batch exchange{.sequence = batch.sequence,
                 .operation = {.kind = OperationKind::allgather, .dtype = DType::uint8},
                 .part = part_of_meeting(MeetingPart::cards)};
  exchange.tensors.push_back({.input = reinterpret_cast<const std::byte*>(&own_),
                              .output = reinterpret_cast<std::byte*>(cards_.data()),
                              .shape = {1, static_cast<int64_t>(sizeof(Card))}});
  return host.start(groups, std::move(exchange));
}

bool GpuGroup::in_levels(const GroupLevels& groups) const {
  return options_.allreduce_in_levels && groups.across;
}

Card GpuGroup::own_card(const GroupLevels& groups, const Gpu* gpu) {
  Card card;
  card.host.set(options_.host);
  card.visible.set(options_.visible);
  card.may_share = options_.may_share ? 1 : 0;
  if (gpu == nullptr) return card;
  const device::GpuInfo info = device::gpu_info(gpu->driver(), gpu->index());
  card.has_gpu = 1;
  card.uuid.set(info.uuid);
  card.bus_id.set(info.bus_id);
  const auto nccl = devices_.nccl();
  if (!nccl) return card;
  card.nccl_version = nccl->version();
  if (rank_ == 0) card.id = unique_id(*nccl, id_);
  if (in_levels(groups) && groups.host->rank() == 0) card.host_id = unique_id(*nccl, host_id_);
  return card;
}

bool GpuGroup::take_decision() {
  if (state_ == State::cards) return decide_by_cards();
  decide_by_answers();
  return false;
}

bool GpuGroup::decide_by_cards() {
  Decision made = decide(cards_, ranks_, {options_.choice, options_.encrypt});
  if (!made.error.empty()) fail(Code::invalid_argument, made.error);
  if (!made.is_final) return false;
  decision_ = std::move(made);
  state_ = decision_->may_share_memory ? State::memory : State::settled;
  if (state_ == State::settled) report(decision_->by_nccl ? hvd::Mover::nccl : hvd::Mover::staged);
  return state_ == State::memory;
}

void GpuGroup::decide_by_answers() {
  const std::string why_not = why_not_mapped(answers_, ranks_);
  shares_memory_ = why_not.empty();
  state_ = State::settled;
  if (!shares_memory_ && rank_ == 0)
    log(LogLevel::warning,
        fmt::format("the ranks {} cannot read each other's GPU memory: {}. GPU tensors are copied "
                    "through host memory, which is slower",
                    fmt::join(ranks_, ", "), why_not));
  report(shares_memory_ ? hvd::Mover::ipc : hvd::Mover::staged);
}

void GpuGroup::report(hvd::Mover mover) const {
  if (rank_ != 0) return;
  const char* const instead = mover == hvd::Mover::ipc
                                  ? "the ranks read each other's GPU memory (CUDA IPC)"
                                  : "GPU tensors are copied through host memory";
  if (!decision_->why.empty())
    log(LogLevel::warning,
        fmt::format("{}. Until then, {}, which is slower", decision_->why, instead));
  log(LogLevel::info,
      fmt::format("gpu group ranks={} way={}", fmt::join(ranks_, ","), name_of(mover)));
}

Communicator* GpuGroup::connected(Level level, const GroupLevels& groups) {
  Connection& made = connection(level);
  if (!made.communicator)
    made.communicator = std::make_unique<Communicator>(devices_.nccl(), options_for(level, groups));
  if (!made.is_settled) made.is_settled = made.communicator->settled();
  return made.is_settled ? made.communicator.get() : nullptr;
}

Communicator::Options GpuGroup::options_for(Level level, const GroupLevels& groups) const {
  if (level == Level::all)
    return {.id = cards_.front().id,
            .rank = rank_,
            .size = static_cast<int>(ranks_.size()),
            .deadline = options_.connect_timeout};
  const auto first = static_cast<size_t>(groups.across->rank() * groups.host->size());
  return {.id = cards_[static_cast<size_t>(groups.ranks[first])].host_id,
          .rank = groups.host->rank(),
          .size = groups.host->size(),
          .deadline = options_.connect_timeout};
}

std::vector<device::CommHandle> GpuGroup::handles() const {
  std::vector<device::CommHandle> made;
  for (const Connection* one : {&all_, &host_})
    if (one->communicator) made.push_back(one->communicator->handle());
  return made;
}

}  // namespace hvd::nccl
