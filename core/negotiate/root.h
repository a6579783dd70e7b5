// The third state machine of negotiation, one per job, next to the hub of host 0. It orders all
// groups in one stream, packs batches, paces them by Nagle's rule, and decides faults, joins,
// shutdown and the stall report. Pure: no I/O, clock, thread or lock.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/packer.h"
#include "core/negotiate/slot_assigner.h"

namespace hvd {

/// Owned and used by one thread, through its Hub.
class Root {
 public:
  explicit Root(const NegotiateOptions& options);

  /// All members of the group have submitted the operation or have joined. The entry contains the
  /// full signature.
  void complete(Entry entry);
  void all_joined(int last);
  void done(GroupNumber group, uint32_t batches);
  /// Ends the job. `text` is the reason sent to every rank; empty if rank `by` has requested the
  /// shutdown.
  void shutdown(int by, const std::string& text);
  void abort(int rank, const std::string& why);
  void stalled();  ///< some rank has waited longer than the warning time
  void expired();  ///< the timeout of an operation has expired: asks at once
  void reported(StallReport report);
  void set_fusion_bytes(uint64_t bytes);
  /// Orders ready operations. Call it when the inbox is empty, so that operations that arrived
  /// together are sent together.
  Down turn();

  bool has_report() const { return report_.has_value(); }
  /// Takes the report of the last query once every rank has answered or was counted as silent;
  /// nullopt otherwise. Operations that have become complete since the query are left out.
  std::optional<StallReport> take_report();
  /// Reports that one period of the stall check has passed. At most one query is sent per period,
  /// unless a timeout has expired.
  void tick();
  /// Returns whether a query was sent in this period or is pending.
  bool needs_tick() const { return asked_this_period_ || wants_query_; }
  /// Returns the members of each process set except the world.
  std::map<GroupNumber, std::vector<int32_t>> process_sets() const;
  /// Number of names remembered over all groups; limited by the slot capacity of each.
  size_t remembered() const;

 private:
  struct Group {
    SlotAssigner slots;
    ReadyQueue ready{};
    int outstanding = 0;             ///< batches of this group sent and not reported as finished
    std::vector<int32_t> members{};  ///< empty for the world
  };

  void add_group(GroupNumber number, std::vector<int32_t> members);
  void issue(GroupNumber number, Group& group);
  bool sets_are_idle() const;
  bool must_wait(const Group& group, const Cut& cut) const;
  void order_batch(GroupNumber number, Group& group, const Cut& cut);
  void order_message(SharedSignature signature);
  void order_control(Group& world);
  void remove_group(GroupNumber number);
  GroupNumber new_group_number();
  void ask();
  void note_complete(const Entry& entry);
  StallReport without_complete(const StallReport& report) const;
  void emit(Verdict verdict);

  NegotiateOptions options_;
  std::map<GroupNumber, Group> groups_;
  GroupNumber next_group_ = kWorldGroup + 1;
  uint64_t sequence_ = 0;
  Down out_;
  bool ended_ = false;
  bool asking_ = false;  ///< a query is in progress
  bool asked_this_period_ = false;
  bool wants_query_ = false;
  bool is_urgent_ = false;  ///< the query that it wants does not wait for the next period
  uint32_t query_ = 0;
  /// Group, name, and ranks if it is a message.
  using OperationId = std::tuple<GroupNumber, NameHash, std::vector<int32_t>>;
  std::set<OperationId> complete_;  ///< during a query: the operations complete since it was sent
  std::optional<StallReport> report_;
};

}  // namespace hvd
