// The second machine of agreement, one a host, beside its leader's Client: counts what its children
// (the host's ranks and the hubs of child hosts) have submitted, by name, and forwards what is
// complete. On host 0 it holds the Root. Pure: no I/O, clock, thread or lock.
#pragma once

#include <bitset>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/root.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// One cache line. A host with more ranks would need several hubs.
inline constexpr int kMaxChildren = 512;
using ChildSet = std::bitset<kMaxChildren>;

/// Owned and driven by one thread. Handle the whole inbox first, then turn(), then send.
class Hub {
 public:
  Hub(int host, const Topology& topology, NegotiateOptions options);

  void from_child(int child, const Up& up);
  void from_parent(const Verdict& verdict);
  void lost_child(int rank, const std::string& why);
  void lost_parent(int rank, const std::string& why);
  /// Host 0: rank 0's engine has run a batch of a group that it is in; the sign of "busy".
  void root_rank_done(GroupNumber group);
  /// One period of the stall check has passed.
  void tick();

  /// Lets the Root order what is ready.
  void turn();
  bool has_up() const;
  Up take_up();
  bool has_down() const;
  std::map<int, Down> take_down();  ///< by child

  /// tick() has something to do here, though no request of this rank may be waiting.
  bool collecting() const { return awaited_.any() || (root_ && root_->needs_tick()); }

  Root* root() { return root_ ? &*root_ : nullptr; }  ///< host 0 only, else nullptr

  /// Operations that some children have submitted and others have not.
  size_t counting() const;
  size_t live_slots() const;
  /// Retired slots that are still kept.
  size_t kept_slots() const;

 private:
  struct Count {
    ChildSet arrived{};
    bool substituted = false;
    int32_t lowest = kNobody;
    uint32_t count = 0;
    Opinions opinions{};
    SlotNumber slot = kNoSlot;  ///< the spelling of the first opinion, if it came as a slot
  };
  /// A rank of a group that is reached through this hub.
  struct Member {
    int32_t rank;
    int child;
  };
  struct Group {
    ChildSet expected{};              ///< children with members
    ChildSet joined{};                ///< of those, the ones whose members have all joined
    std::vector<Member> members{};    ///< ascending
    std::vector<uint32_t> present{};  ///< [child] members that have not joined
    SlotTable slots{};
    std::unordered_map<NameHash, Count> counts{};
    std::vector<uint32_t> seen{};  ///< [child] retirements acknowledged
  };

  void arrive(int child, const Entry& entry);
  static void count_in(Count& count, const Entry& entry, const SharedSignature* by_slot);
  bool is_complete(GroupNumber number, const Group& group, const Count& count) const;
  void forward_complete(GroupNumber number, Group& group);
  void forward(GroupNumber number, Group& group, const NameHash& name);
  void acknowledge(int child, GroupNumber number, uint32_t retirements);
  void ranks_joined(const std::vector<int32_t>& ranks);
  static bool note_joined(Group& group, int32_t rank);
  void add_done(GroupNumber group, uint32_t batches);
  void shutdown(int by);
  void stalled();
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
  std::set<int32_t> joined_;  ///< ranks below, since the last join was done
  bool stalled_ = false;      ///< told upward, no query since
  ChildSet awaited_;          ///< children that have not answered the query
  int ticks_awaited_ = 0;
  uint32_t query_ = 0;
  StallReport report_;
  Up up_;
  std::map<int, Down> down_;
};

}  // namespace hvd
