// The Lookout of a blocking group: the job that has made the group, as long as it runs. A group may
// outlive its job, and then finds only ranks that have ended.
#pragma once

#include <memory>

#include "core/blocking/lookout.h"
#include "core/capi/context.h"

namespace hvd {

class JobLookout final : public Lookout {
 public:
  explicit JobLookout(const std::shared_ptr<Context>& context) : context_(context) {}

  void begin() override {
    if (const auto context = context_.lock()) context->count_waiting_calls(1);
  }
  void end() noexcept override {
    if (const auto context = context_.lock()) context->count_waiting_calls(-1);
  }
  std::optional<Error> loss(std::span<const int> ranks) override {
    const auto context = context_.lock();
    return context ? context->loss_of_one_of(ranks) : std::nullopt;
  }

 private:
  std::weak_ptr<Context> context_;
};

}  // namespace hvd
