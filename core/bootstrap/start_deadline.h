// The time limit for starting a job (HOROVOD_START_TIMEOUT), common to all steps of the start.
#pragma once

#include <chrono>
#include <string>

#include "core/base/clock.h"

namespace hvd {

struct StartDeadline {
  TimePoint at;
  std::chrono::seconds allowed{0};

  /// Begins now.
  explicit StartDeadline(std::chrono::seconds allowed);
  /// Never negative.
  Duration left() const;
  /// Throws Error{timed_out} about `rank`: "<what> within 30 s (HOROVOD_START_TIMEOUT)".
  [[noreturn]] void fail_at(const std::string& what, int rank) const;
  /// The end of that text, from "within".
  std::string text() const;
};

}  // namespace hvd
