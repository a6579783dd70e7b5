// A simulated job of Clients, Hubs and a Root. FIFO links with random delays carry encoded
// messages. Ranks submit in random order, and engines run one batch at a time. Ranks die, sleep,
// join or shut down. The seed determines the whole run. Linked by tests only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/negotiate/client.h"
#include "core/negotiate/hub.h"
#include "core/sim/census.h"
#include "core/sim/negotiation_checker.h"
#include "core/sim/negotiation_program.h"
#include "core/sim/without.h"

namespace hvd::sim {

struct SimOptions {
  Without without = Without::nothing;
  int large_hosts =
      0;  ///< number of hosts with 8 ranks, without deaths and shutdowns; 0: a small job
};

class NegotiationSim {
 public:
  NegotiationSim(uint64_t seed, const SimOptions& options);

  /// Throws Error{internal} if a check fails.
  void run();

  const Census& census() const { return census_; }
  /// Returns a hash of all messages and their times.
  uint64_t digest() const { return digest_; }

 private:
  using Event = std::function<void()>;
  struct Timed {
    int64_t when = 0;
    uint64_t number = 0;
    Event event;
    bool operator<(const Timed& other) const {
      return std::tie(other.when, other.number) < std::tie(when, number);  // earliest on top
    }
  };
  struct Flight {
    int set = kWorldSet;  ///< the set it was submitted to
    std::string name{};
    int subject = kWorldSet;         ///< the set that it adds or removes
    std::vector<int32_t> between{};  ///< message: its ranks
  };
  struct User {
    size_t next = 0;                       ///< instruction
    std::map<uint64_t, Flight> in_flight;  ///< by tag
    std::map<GroupNumber, int> sets;       ///< by number, while they exist
    std::map<int, GroupNumber> numbers;
    std::set<int> gone;
    bool joining = false;
    bool ended = false;
    bool lost = false;
    int cause = kNoRank;
    std::vector<int> joins;
  };
  struct Engine {
    std::deque<std::pair<int, Action>> queue;  ///< set, batch
    bool busy = false;
  };

  // Time, links and nodes: the Client of rank r is node r, the Hub of host h is node ranks() + h.
  int ranks() const { return program_.topology.ranks(); }
  int hub_node(int host) const { return ranks() + host; }
  int rank_of_node(int node) const;
  int node_of_child(int host, int child) const;
  bool is_alive(int node) const { return !dead_.contains(rank_of_node(node)); }
  void after(int delay, int node, Event event);
  void deliver(int from, int to, uint64_t channel, const ByteVector& bytes, Event event);
  void schedule(int64_t when, int node, Event event);
  void drain();
  void mark_dirty(int node);
  void flush(int node);
  void flush_client(int rank);
  void flush_hub(int host);
  void send_up(int from, int host, int child, Up up);
  void send_down(int host);
  void hear_up(int host, int child, const Up& up);
  void hear_down(int node, const Down& down);

  // Users and engines.
  void step_user(int rank);
  bool is_blocked(const User& user, const Instruction& next) const;
  bool submit(int rank, const Instruction& next);
  void wake_user(int rank);
  void take_actions(int rank);
  void act(int rank, Action action);
  int set_of(int rank, GroupNumber number) const;
  void run_engine(int rank);
  void batch_done(int rank, int set, const Action& batch);
  bool is_done(int rank) const;

  // Faults.
  void plan_trouble();
  void plan_deaths();
  void meet_doom(int rank, Instruction::Type step);
  void kill(int rank);
  void count_death();
  void tell_of_death(int rank);
  void shut_down(int rank);
  void check_stall();
  void tick_all();
  void check_report(const StallReport& report);
  void check_late_rank_is_named(const std::string& text) const;
  bool must_be_silent(int rank) const;
  void wake_late_rank();

  // Variants without a rule.
  void spoil_join(int rank, Up& up) const;
  Verdict spoil_verdict(int rank, Verdict verdict) const;
  void fuse_queued(Engine& engine, Action& batch) const;

  void check_end();
  void count_mixture();
  void check_rank(int rank) const;
  void check_slots(int rank) const;

  Dice dice_;
  Program program_;
  SimOptions options_;
  Census census_;
  NegotiationChecker checker_;
  int slowness_ = 1;
  std::vector<Client> clients_;
  std::vector<Hub> hubs_;
  std::vector<User> users_;
  std::vector<Engine> engines_;
  std::vector<bool> dirty_;  ///< [node] a flush is scheduled
  std::priority_queue<Timed> events_;
  uint64_t event_count_ = 0;
  int64_t now_ = 0;
  std::map<std::tuple<int, int, uint64_t>, int64_t> links_;  ///< when the last message arrives
  std::vector<std::pair<int, Event>> slept_through_;         ///< events for sleeping ranks
  uint64_t digest_ = 0;
  std::set<int> dead_;
  int doomed_rank_ = kNoRank;  ///< dies soon after instruction doom_
  Instruction::Type doom_ = Instruction::Type::submit;
  int next_victim_ = kNoRank;  ///< dies soon after the first death
  int sleeping_rank_ = kNoRank;
  bool late_sleeps_ = false;  ///< true: the late rank sleeps; false: it only stops submitting
  bool shut_down_ = false;
};

}  // namespace hvd::sim
