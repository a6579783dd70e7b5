// The first machine of agreement, one a rank: the names in flight and the batches to run. It obeys;
// the Root decides. Pure: no I/O, clock, thread or lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/slot_table.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// One operation of a batch as this rank sees it. `mine` is false where this rank has joined and
/// stands in with neutral elements.
struct Bound {
  SharedSignature signature{};
  bool mine = false;
  uint64_t tag = 0;  ///< what submit() was given
};

/// What the engine must do, in order.
struct Action {
  enum class Type : uint8_t {
    run,          ///< `bound` as one batch of `group`, number `sequence`
    fail,         ///< the request `tag` has ended with `text`
    joined,       ///< the join is complete; `rank` was last
    ended,        ///< nothing runs any more; `rank` is the cause, `lost` tells loss from shutdown;
                  ///< `text` is what was seen of the lost rank, or why the Root has shut down
    set_added,    ///< request `tag` is complete; the new group is `group`
    set_removed,  ///< request `tag` is complete; `group` is gone
  };
  Type type = Type::run;
  GroupNumber group = kWorldGroup;
  uint64_t sequence = 0;
  std::vector<Bound> bound{};
  uint64_t tag = 0;
  std::vector<int32_t> members{};  ///< set_added: global ranks, on every rank
  std::string text{};
  int rank = kNobody;
  bool lost = false;
};

enum class Submitted : uint8_t { accepted, duplicate_name, joined, ended, not_a_member };

/// Owned and driven by one thread.
class Client {
 public:
  Client(int rank, const Topology& topology, NegotiateOptions options);

  /// `signature.name` is hash_name(name). Process sets are added and removed in the world. `tag`
  /// comes back in Actions. Only `accepted` sends anything.
  Submitted submit(GroupNumber group, const std::string& name, const Signature& signature,
                   uint64_t tag);
  /// False when already joined or ended.
  bool join();
  void shutdown();
  /// The engine has run a batch. Frees its names.
  void batch_done(GroupNumber group, const std::vector<Bound>& bound);
  void parent_lost(int rank, const std::string& why);
  /// One period of the stall check has passed.
  void tick();

  void from_parent(const Verdict& verdict);

  bool has_up() const;
  Up take_up();
  std::vector<Action> take_actions();

  bool ended() const;
  bool is_member(GroupNumber group) const;
  bool joined() const { return joined_; }
  /// Requests submitted and not yet agreed.
  size_t waiting() const;
  /// The slots of a group that this rank is in, else nullptr.
  const SlotTable* slots(GroupNumber group) const;

 private:
  struct Request {
    std::string name{};
    SharedSignature signature{};
    uint64_t tag = 0;
    uint32_t age_ticks = 0;
    bool runs = false;  ///< agreed, and not yet done here; else it waits
  };
  struct Group {
    SlotTable slots{};
    std::unordered_map<NameHash, Request> in_flight{};
    size_t waiting = 0;  ///< of those in flight
    int pacer = 0;       ///< tells the Root when a batch is done

    /// The request that waits under a name, else nullptr.
    Request* find_waiting(const NameHash& name);
    void erase_waiting(const NameHash& name);
  };

  void add_group(GroupNumber number, const std::vector<int32_t>& members);
  static SharedSignature known(const Group& group, const Signature& signature);
  void announce(GroupNumber number, const Group& group, const SharedSignature& signature);
  void run_batch(const Verdict& verdict);
  Bound bind(GroupNumber number, Group& group, const Item& item);
  void change_groups(const Bound& bound, GroupNumber new_group);
  void remove_group(GroupNumber number);
  void fail_request(const Verdict& verdict);
  void answer(uint32_t query);
  void end(int rank, bool lost, std::string text);

  int rank_;
  Rules rules_;
  std::map<GroupNumber, Group> groups_;
  std::string last_submitted_;
  bool joined_ = false;
  bool ended_ = false;
  Up up_;
  std::vector<Action> actions_;
};

}  // namespace hvd
