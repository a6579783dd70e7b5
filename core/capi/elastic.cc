// Implements the part of the C interface that is about elastic jobs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/bootstrap/membership.h"
#include "core/capi/process.h"
#include "horovod/horovod.h"

namespace {

using hvd::Code;
using hvd::guarded;

constexpr double kMaxSeconds = 3600;

hvd::Duration duration_of(double seconds) {
  const double limited = std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMaxSeconds) : 0;
  return std::chrono::duration_cast<hvd::Duration>(std::chrono::duration<double>(limited));
}

std::shared_ptr<hvd::Membership> required() {
  auto membership = hvd::membership();
  if (!membership)
    hvd::fail(Code::invalid_argument,
              "this process is not part of an elastic job: start it with horovodrun --min-np N, or "
              "with --host-discovery-script");
  return membership;
}

}  // namespace

bool hvd_is_elastic(void) {
  bool found = false;
  guarded([&] { found = hvd::membership() != nullptr; });
  return found;
}

hvd_status hvd_ask_for_place(void) {
  return guarded([] {
    const auto membership = required();
    if (hvd::current())
      hvd::fail(Code::invalid_argument,
                "call hvd.shutdown() first: this process still has its place in the previous "
                "generation");
    membership->ask();
  });
}

hvd_status hvd_await_place(double seconds, bool* placed) {
  return guarded([&] {
    const auto membership = hvd::membership();
    *placed = !membership || membership->await_place(duration_of(seconds));
  });
}

hvd_status hvd_get_place(int64_t* generation, const char** variables) {
  return guarded([&] {
    const auto membership = required();
    constexpr int64_t kNone = -1;
    const auto assigned = membership->generation();
    *generation = assigned ? static_cast<int64_t>(*assigned) : kNone;
    thread_local std::string text;
    text.clear();
    for (const auto& [name, value] : membership->variables()) text += name + "=" + value + "\n";
    *variables = text.c_str();
  });
}

hvd_status hvd_leave_job(void) {
  return guarded([] { required()->leave(); });
}

hvd_status hvd_pending_update(hvd_elastic_update* update, bool* pending) {
  return guarded([&] {
    const auto found = required()->pending_update();
    *pending = found.has_value();
    if (found) *update = {found->added, found->removed, found->timestamp};
  });
}
