// The Lookout of a blocking group: the job that has made the group, as long as it runs. A group may
// outlive its job, and then finds only ranks that have ended.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/blocking/lookout.h"
#include "core/capi/context.h"

namespace hvd {

class JobLookout final : public Lookout {
 public:
  /// `group`: a name of the group, equal on all its `ranks`.
  JobLookout(std::weak_ptr<Context> context, std::string group, std::vector<int> ranks)
      : context_(std::move(context)), group_(std::move(group)), ranks_(std::move(ranks)) {}

  void begin(const WaitingCall& call) override {
    const auto context = context_.lock();
    if (!context) return;
    place_ = context->group_calls().add(
        {fmt::format("call {} ({}) on {}", call.number, name_of(call.kind), group_), ranks_,
         call.since});
    context->count_waiting_calls(1);
  }
  void end() noexcept override {
    const auto context = context_.lock();
    if (!context) return;
    context->group_calls().remove(place_);
    context->count_waiting_calls(-1);
  }
  std::optional<Error> loss(std::span<const int> ranks) override {
    const auto context = context_.lock();
    return context ? context->loss_of_one_of(ranks) : std::nullopt;
  }

 private:
  const std::weak_ptr<Context> context_;
  const std::string group_;
  const std::vector<int> ranks_;
  GroupCalls::Place place_{};  ///< of the call that waits
};

}  // namespace hvd
