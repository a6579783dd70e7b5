// The third machine of agreement, one a job, beside the hub of host 0: orders all groups in one
// stream, packs batches, paces them by Nagle's rule, and decides faults, joins, the end and the
// stall report. Pure: no I/O, clock, thread or lock.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/packer.h"
#include "core/negotiate/slot_assigner.h"

namespace hvd {

/// Owned and driven by one thread, through its Hub.
class Root {
 public:
  explicit Root(const NegotiateOptions& options);

  /// Every member of the group is in, or has joined. The entry is in full.
  void complete(Entry entry);
  void all_joined(int last);
  void done(GroupNumber group, uint32_t batches);
  /// Ends the job. `text` is what every rank is told; empty when rank `by` has just asked for it.
  void shutdown(int by, const std::string& text);
  void abort(int rank, const std::string& why);
  void stalled();  ///< some rank has waited for long
  void reported(StallReport report);
  void set_fusion_bytes(uint64_t bytes);
  /// Orders what is ready. To be called once the inbox is empty, so that what came together leaves
  /// together.
  Down turn();

  /// The report of the last query, once every rank has answered or was counted silent. Taken once.
  std::optional<StallReport> take_report();
  /// One period of the stall check has passed; at most one query a period is asked.
  void tick();
  /// A query of this period or a wish for one is remembered until the next tick.
  bool needs_tick() const { return asked_this_period_ || wants_query_; }
  /// The members of each process set; the world is not among them.
  std::map<GroupNumber, std::vector<int32_t>> process_sets() const;
  /// Names remembered over all groups: bounded by the slot capacity of each.
  size_t remembered() const;

 private:
  struct Group {
    SlotAssigner slots;
    ReadyQueue ready{};
    int outstanding = 0;             ///< batches of this group sent and not known to be done
    std::vector<int32_t> members{};  ///< the world: empty
  };

  void add_group(GroupNumber number, std::vector<int32_t> members);
  void issue(GroupNumber number, Group& group);
  bool sets_are_idle() const;
  bool must_wait(const Group& group, const Cut& cut) const;
  void order_batch(GroupNumber number, Group& group, const Cut& cut);
  void order_control(Group& world);
  void remove_group(GroupNumber number);
  GroupNumber new_group_number();
  void ask();
  void emit(Verdict verdict);

  NegotiateOptions options_;
  std::map<GroupNumber, Group> groups_;
  GroupNumber next_group_ = kWorldGroup + 1;
  uint64_t sequence_ = 0;
  Down out_;
  bool ended_ = false;
  bool asking_ = false;  ///< a query is under way
  bool asked_this_period_ = false;
  bool wants_query_ = false;
  uint32_t query_ = 0;
  std::optional<StallReport> report_;
};

}  // namespace hvd
