// The part of a launch that looks for workers which are stopped while others wait for them.
#pragma once

#include <optional>
#include <vector>

#include "core/transport/store_server.h"
#include "launcher/dump_part.h"
#include "launcher/worker/assignment.h"
#include "launcher/worker/stopped_search.h"

namespace hvd::launcher {

/// Owned and used by the launcher's only thread; never blocks.
class StoppedPart {
 public:
  /// All references outlive this.
  StoppedPart(const StoreServer& store, const Assignment& assignment, DumpPart& dump)
      : store_(store), assignment_(assignment), dump_(dump) {}

  /// Asks the hosts, unless it can be seen that no rank waits.
  void look(const LookForStopped& look, TimePoint now);
  /// Returns the answer, once: the workers that are stopped while others wait.
  std::optional<std::vector<WorkerId>> take();

 private:
  bool is_awaited_by_others(const std::vector<WorkerId>& stopped) const;

  const StoreServer& store_;
  const Assignment& assignment_;
  DumpPart& dump_;
  bool only_in_init_ = false;
  bool none_waits_ = false;  ///< the answer
};

}  // namespace hvd::launcher
