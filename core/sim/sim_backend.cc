#include "core/sim/sim_backend.h"

namespace hvd::sim {
namespace {

// Upper limit of the polls before a run is done. The simulator must not mistake them for a hang.
constexpr uint64_t kMostLooks = 3;

class SimRun final : public Run {
 public:
  SimRun(std::unique_ptr<Run> mover, int& moving, uint64_t looks)
      : mover_(std::move(mover)), moving_(moving), looks_(looks) {
    ++moving_;
  }
  ~SimRun() override { stop_moving(); }

  Progress advance() override {
    if (mover_) {
      const Progress progress = mover_->advance();
      if (progress != Progress::done) return progress;
      stop_moving();
    }
    return looks_-- == 0 ? Progress::done : Progress::launched;
  }
  Activity activity() const override { return mover_ ? mover_->activity() : Activity::data; }
  Route route() const override { return mover_ ? mover_->route() : Route{}; }

 private:
  void stop_moving() {
    if (mover_) --moving_;
    mover_.reset();
  }

  std::unique_ptr<Run> mover_;
  int& moving_;
  uint64_t looks_;
};

}  // namespace

std::unique_ptr<Run> SimBackend::start(GroupLevels& groups, Batch batch) {
  return std::make_unique<SimRun>(mover_->start(groups, std::move(batch)), moving_,
                                  launches_ ? random_() % kMostLooks : 0);
}

}  // namespace hvd::sim
