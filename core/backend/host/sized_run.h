// A Run with outputs whose sizes depend on other ranks. It exchanges sizes, allocates the outputs
// in a separate step, then moves the data.
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/host/pass_sequence.h"

namespace hvd {

class SizedRun : public Run {
 public:
  Progress advance() final {
    if (activity_ == Activity::outputs) {
      allocate_outputs();
      move_data();
      return Progress::moved;
    }
    const Progress progress = passes_.advance();
    if (progress != Progress::done || activity_ == Activity::data) return progress;
    activity_ = Activity::outputs;
    return Progress::moved;
  }
  Activity activity() const final { return activity_; }
  Route route() const final { return passes_.route(); }

 protected:
  /// `rows`: how many row counts the ranks exchange.
  SizedRun(const Batch& batch, uint32_t most_passes, size_t rows)
      : rows_(rows), passes_(batch, most_passes) {}

  virtual void allocate_outputs() = 0;
  /// Adds the passes for the data and sets `activity_`.
  virtual void move_data() = 0;

  std::vector<int64_t> rows_;
  PassSequence passes_;  // destroyed before rows_: links may still send from them
  Activity activity_ = Activity::sizes;
};

}  // namespace hvd
