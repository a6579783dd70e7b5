#include "core/bootstrap/start_deadline.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/error.h"

namespace hvd {

StartDeadline::StartDeadline(std::chrono::seconds allowed_time)
    : at(std::chrono::steady_clock::now() + allowed_time), allowed(allowed_time) {}

Duration StartDeadline::left() const {
  return std::max(at - std::chrono::steady_clock::now(), Duration::zero());
}

std::string StartDeadline::text() const {
  return fmt::format("within {} s (HOROVOD_START_TIMEOUT)", allowed.count());
}

void StartDeadline::fail_at(const std::string& what, int rank) const {
  fail(Code::timed_out, what + " " + text(), rank);
}

}  // namespace hvd
