// The part of a launch that looks for workers which are stopped while others wait for them.
#pragma once

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

  /// Looks, unless it can be seen that none waits.
  void look(const LookForStopped& look, TimePoint now);
  /// Returns those that the last look has found, once.
  std::vector<WorkerId> take();

 private:
  const StoreServer& store_;
  const Assignment& assignment_;
  DumpPart& dump_;
  bool only_in_init_ = false;
};

}  // namespace hvd::launcher
