// The third machine of agreement, one a job, beside the hub of host 0: orders all groups in one stream, packs batches, paces
// them by Nagle's rule, and decides faults, joins, the end and the stall report.
// Pure: no I/O, clock, thread or lock.
#pragma once

#include <optional>
#include <string>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/slot_table.h"

namespace hvd {

/// Owned and driven by one thread, through its Hub.
class Root {
 public:
  Root(const NegotiateOptions& options, int ranks);

  void complete(Entry entry);
  void all_joined(int last);
  void done(GroupNumber group, uint32_t batches);
  void shutdown(int by, const std::string& text);
  void abort(int rank, const std::string& why);
  void stalled();
  void reported(StallReport report);
  void set_fusion_bytes(uint64_t bytes);
  Down turn();

  /// The report of the last query, once every rank has answered or was counted silent. Taken once.
  std::optional<StallReport> take_report();
  // … the rest is the implementer's
};

}  // namespace hvd
