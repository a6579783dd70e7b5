// A Run whose outputs are known in size only when the ranks have told each other: sizes travel, the
// outputs are allocated in a step of their own, data travels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/host/passes.h"

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

 protected:
  /// `rows`: how many numbers of rows the ranks tell each other.
  SizedRun(uint64_t batch, uint32_t most_passes, size_t rows)
      : rows_(rows), passes_(batch, most_passes) {}

  virtual void allocate_outputs() = 0;
  /// Adds the passes of the data, and says so by `activity_`.
  virtual void move_data() = 0;

  std::vector<int64_t> rows_;
  Passes passes_;  // ends before the rows: links may still hold what it has lent of them
  Activity activity_ = Activity::sizes;
};

}  // namespace hvd
