// The second state machine of negotiation, one per host, next to the leader's Client. It counts by
// name what its children (the host's ranks and the hubs of child hosts) have submitted and forwards
// complete operations. On host 0 it contains the Root. Pure: no I/O, clock, thread or lock.
#pragma once

#include <bitset>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/root.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// One cache line. Hosts with more ranks would need several hubs.
inline constexpr int kMaxChildren = 512;
using ChildSet = std::bitset<kMaxChildren>;

/// Owned and used by one thread. Process the whole inbox, then call turn(), then send.
class Hub {
 public:
  Hub(int host, const Topology& topology, NegotiateOptions options);

  void from_child(int child, const Up& up);
  void from_parent(const Verdict& verdict);
  void lost_child(int rank, const std::string& why);
  void lost_parent(int rank, const std::string& why);
  /// Host 0: reports that rank 0's engine has run a batch of one of its groups, which paces the
  /// Root.
  void root_rank_done(GroupNumber group);
  /// Reports that one period of the stall check has passed.
  void tick();

  /// Lets the Root order ready operations.
  void turn();
  bool has_up() const;
  Up take_up();
  bool has_down() const;
  std::map<int, Down> take_down();  ///< by child

  /// Returns whether tick() has work, even if no request of this rank is waiting.
  bool collecting() const { return awaited_.any() || (root_ && root_->needs_tick()); }

  Root* root() { return root_ ? &*root_ : nullptr; }  ///< host 0 only, else nullptr

  /// Number of operations that only some children have submitted.
  size_t counting() const;
  size_t live_slots() const;
  /// Number of retired slots that are still kept.
  size_t kept_slots() const;

 private:
  struct Count {
    ChildSet arrived{};
    bool substituted = false;
    int32_t lowest = kNoRank;
    uint32_t count = 0;
    Opinions opinions{};
    SlotNumber slot = kNoSlot;  ///< the slot of the first opinion, if it was sent as a slot
  };
  /// A group member reached through this hub.
  struct Member {
    int32_t rank;
    int child;
  };
  struct Group {
    ChildSet expected{};              ///< children with members
    ChildSet joined{};                ///< children in `expected` whose members have all joined
    std::vector<Member> members{};    ///< ascending
    std::vector<uint32_t> present{};  ///< [child] number of members that have not joined
    SlotTable slots{};
    std::unordered_map<NameHash, Count> counts{};
    std::vector<uint32_t> seen{};  ///< [child] retirements acknowledged
  };

  /// Messages that one of two ranks in this subtree has submitted, in the order of submission. No
  /// empty queues. All of a queue are from one child, since the first is complete when the other
  /// child has submitted it too.
  using Messages = std::map<MessageKey, std::deque<Count>>;

  ChildSet recipients(const Group& group, const Verdict& verdict) const;
  void arrive(int child, const Entry& entry);
  static void count_in(Count& count, const Entry& entry, const SharedSignature* by_slot);
  bool is_complete(GroupNumber number, const Group& group, const Count& count) const;
  void forward_complete(GroupNumber number, Group& group);
  void forward(GroupNumber number, Group& group, const NameHash& name);
  static Entry total_of(GroupNumber number, Count count, const ChildSet& expected);
  void arrive_message(int child, const Entry& entry);
  bool is_complete(const std::vector<int32_t>& ends, const Count& count) const;
  void forward_complete(Messages::iterator place);
  void forward(const std::vector<int32_t>& ends, Count message);
  void forward_complete_messages();
  ChildSet children_towards(const std::vector<int32_t>& ranks) const;
  void acknowledge(int child, GroupNumber number, uint32_t retirements);
  void ranks_joined(const std::vector<int32_t>& ranks);
  static bool note_joined(Group& group, int32_t rank);
  void add_done(GroupNumber group, uint32_t batches);
  void shutdown(int by);
  void stalled();
  void expired();
  void report_lost(int rank, const std::string& why);
  void collect(int child, const Up& up);
  void send_report();

  void apply_batch(Group& group, const Verdict& verdict);
  void add_group(GroupNumber number, const std::vector<int32_t>& members);
  void count_present(Group& group) const;
  void finish_join();
  void begin_query(uint32_t query);
  std::vector<int32_t> ranks_through(int child) const;

  int host_;
  Topology topology_;
  Rules rules_;
  int children_;
  ChildSet all_children_;
  std::optional<Root> root_;
  std::unordered_map<GroupNumber, Group> groups_;
  Messages messages_;
  std::set<int32_t>
      joined_;            ///< ranks in this subtree that have joined since the last completed join
  bool stalled_ = false;  ///< reported to the parent; no query received since
  ChildSet awaited_;      ///< children that have not answered the query
  int ticks_awaited_ = 0;
  uint32_t query_ = 0;
  StallReport report_;
  Up up_;
  std::map<int, Down> down_;
};

}  // namespace hvd
