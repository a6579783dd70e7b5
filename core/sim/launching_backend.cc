#include "core/sim/launching_backend.h"

namespace hvd::sim {
namespace {

// Upper limit of the polls before a run is done. The simulator must not mistake them for a hang.
constexpr uint64_t kMostLooks = 3;

class LaunchingRun final : public Run {
 public:
  LaunchingRun(std::unique_ptr<Run> moving, uint64_t looks)
      : moving_(std::move(moving)), looks_(looks) {}

  Progress advance() override {
    if (moving_) {
      const Progress progress = moving_->advance();
      if (progress != Progress::done) return progress;
      moving_.reset();
    }
    return looks_-- == 0 ? Progress::done : Progress::launched;
  }
  Activity activity() const override { return moving_ ? moving_->activity() : Activity::data; }
  Route route() const override { return moving_ ? moving_->route() : Route{}; }

 private:
  std::unique_ptr<Run> moving_;
  uint64_t looks_;
};

}  // namespace

std::unique_ptr<Run> LaunchingBackend::start(GroupLevels& groups, Batch batch) {
  return std::make_unique<LaunchingRun>(mover_->start(groups, std::move(batch)),
                                        random_() % kMostLooks);
}

}  // namespace hvd::sim
