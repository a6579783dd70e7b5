// The first state machine of negotiation, one per rank: tracks the names in flight and the batches
// to run. The Root decides; the Client follows. Pure: no I/O, clock, thread or lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/negotiate/messages.h"
#include "core/negotiate/options.h"
#include "core/negotiate/slot_table.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// One operation of a batch as seen by this rank. `mine` is false if this rank has joined and
/// contributes neutral elements.
struct Bound {
  SharedSignature signature{};
  bool mine = false;
  uint64_t tag = 0;  ///< as passed to submit()
};

/// An instruction to the engine; they must be executed in order.
struct Action {
  enum class Type : uint8_t {
    run,        ///< run `bound` as one batch of `group`, number `sequence`
    fail,       ///< the request `tag` has failed with error `text`
    joined,     ///< the join is complete; `rank` joined last
    ended,      ///< no more operations run; `rank` is the cause. `lost`: by loss (of the launcher:
                ///< kLostLauncher), else by shutdown; `text` describes how it was lost, or why the
                ///< Root has shut down
    set_added,  ///< request `tag` is complete; the new group is `group`
    set_removed,  ///< request `tag` is complete; `group` is removed
  };
  Type type = Type::run;
  GroupNumber group = kWorldGroup;
  uint64_t sequence = 0;
  std::vector<Bound> bound{};
  uint64_t tag = 0;
  std::vector<int32_t> members{};  ///< set_added: global ranks, on every rank
  std::string text{};
  int rank = kNoRank;
  bool lost = false;
};

enum class Submitted : uint8_t { accepted, duplicate_name, joined, ended, not_a_member };

/// Owned and used by one thread.
class Client {
 public:
  /// Numbers of requests announced so far.
  struct Announced {
    uint64_t by_slot = 0;  ///< as a slot: all ranks know the name and the signature
    uint64_t in_full = 0;  ///< with the signature
  };

  Client(int rank, const Topology& topology, NegotiateOptions options);

  /// Submits an operation. `signature.name` must be hash_name(name). Process sets are added and
  /// removed, and messages are sent, in the world group. Several messages of one name may wait:
  /// their two ranks match them in the order of submission. `tag` is returned in Actions. Sends
  /// only if `accepted`.
  Submitted submit(GroupNumber group, const std::string& name, const Signature& signature,
                   uint64_t tag);
  /// Returns false if already joined or ended.
  bool join();
  void shutdown();
  /// Frees the names of a batch: its operations have completed here.
  void free_names(GroupNumber group, const std::vector<Bound>& bound);
  /// Reports that a batch has ended here, so that the Root may send another one.
  void batch_ended(GroupNumber group);
  /// Both.
  void batch_done(GroupNumber group, const std::vector<Bound>& bound) {
    free_names(group, bound);
    batch_ended(group);
  }
  void parent_lost(int rank, const std::string& why);
  /// Reports that one period of the stall check has passed.
  void tick();
  /// The timeout of a request has expired. The Root ends the job, unless all ranks submit it
  /// meanwhile. Does nothing if the request is agreed.
  void expire(GroupNumber group, const Signature& signature, std::chrono::milliseconds timeout);

  void from_parent(const Verdict& verdict);

  bool has_up() const;
  Up take_up();
  std::vector<Action> take_actions();

  bool ended() const;
  bool is_member(GroupNumber group) const;
  bool joined() const { return joined_; }
  /// Number of requests submitted and not yet agreed.
  size_t waiting() const;
  const Announced& announced() const { return announced_; }
  /// Returns the slots of a group; nullptr if this rank is not a member.
  const SlotTable* slots(GroupNumber group) const;

 private:
  struct Request {
    std::string name{};
    SharedSignature signature{};
    uint64_t tag = 0;
    uint32_t age_ticks = 0;
    uint32_t expired_ms = 0;
    bool runs = false;  ///< agreed and not yet finished here; false: not agreed yet
  };
  struct Group {
    SlotTable slots{};
    std::unordered_map<NameHash, Request> in_flight{};
    size_t waiting = 0;  ///< number of requests in flight that are not agreed yet
    int pacer = 0;       ///< the member that reports finished batches to the Root

    /// Returns the waiting request with this name, or nullptr.
    Request* find_waiting(const NameHash& name);
  };

  Request* add_request(Group& group, const Signature& signature);
  Request* find_waiting(Group& group, const Signature& signature);
  void pop_message(const Signature& signature);
  void add_group(GroupNumber number, const std::vector<int32_t>& members);
  static SharedSignature known(const Group& group, const Signature& signature);
  void announce(GroupNumber number, const Group& group, const SharedSignature& signature);
  void run_batch(const Verdict& verdict);
  Bound bind(GroupNumber number, Group& group, const Item& item);
  void change_groups(const Bound& bound, GroupNumber new_group);
  void remove_group(GroupNumber number);
  void fail_request(const Verdict& verdict);
  std::vector<WaitingName> all_waiting() const;
  static WaitingName as_waiting(GroupNumber number, const Request& request);
  void answer(uint32_t query);
  void end(int rank, bool lost, std::string text);

  int rank_;
  Rules rules_;
  std::map<GroupNumber, Group> groups_;
  /// The messages that are not agreed yet, in the order of submission; no empty queues.
  std::map<MessageKey, std::deque<Request>> messages_;
  std::string last_submitted_;
  Announced announced_;
  bool joined_ = false;
  bool ended_ = false;
  Up up_;
  std::vector<Action> actions_;
};

}  // namespace hvd
