// A whole job in one process and one thread: real engines over links in memory, stepped in an order
// drawn from a seed, with transfers of random lengths. The engine is a step function, so only the
// links, the clock and the sleep are faked. Equal seeds give equal runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/group/segment_memory.h"
#include "core/sim/sim_waiter.h"
#include "core/sim/wire.h"

namespace hvd::sim {

struct WorldOptions {
  std::vector<int> ranks_per_host = {2};
  uint64_t seed = 1;
  Knobs knobs{};
  /// The ranks of a host use its segment, of Knobs::staging_bytes per rank.
  bool shared_memory = false;
  /// Links accept at least as much from a rank whose peer does not read.
  size_t least_link_bytes = 1;
  /// Replaces that of the knobs. With one, time passes in its beats.
  std::chrono::milliseconds heartbeat{0};
  /// Runs behave like those of a device: they are launched and end some time later.
  bool launches = false;
  /// Ranks that have ended keep their connections, as in scripts that go on after an error.
  bool keeps_connections = false;
};

class World {
 public:
  explicit World(const WorldOptions& options);
  /// Ends all engines.
  ~World();

  int size() const { return static_cast<int>(ranks_.size()); }

  /// Submits on one rank. The handle completes with the operation, or at once if the engine has
  /// ended or the name is in flight.
  std::shared_ptr<Completion> submit(int rank, Request request);
  void shutdown(int rank);
  /// Kills the rank. Each of its connections ends with or without what is in transit.
  void lose(int rank);

  /// The rank ends with an error of its own, as for a lack of memory.
  void fail(int rank);

  /// The rank does nothing more until it is resumed, as a process that a signal has stopped.
  void stop(int rank) { ranks_[rank].stopped = true; }
  void resume(int rank);
  /// What `from` sends does not arrive at `to` as long as it is held, nor the end of `from`.
  void hold(int from, int to, bool held);
  /// Time passes in which no rank does anything, as in a suspended job.
  void suspend(Duration time) {
    clock_.advance(time);
    quiet_ = 0;
  }
  /// run_until() does not advance the time beyond this.
  void set_alarm(std::optional<TimePoint> alarm) { alarm_ = alarm; }

  /// Steps until `done()`. Returns false if no rank can make progress. Time advances without
  /// progress only: to the next deadline of an engine or to the alarm, at most `patience` times.
  template <class Done>
  bool run_until(Done done, int patience = 0) {
    while (!done()) {
      quiet_ = step() ? 0 : quiet_ + 1;
      if (quiet_ < quiet_turns_ * size()) continue;
      if (patience-- <= 0 || !pass_time()) return false;
      quiet_ = 0;
    }
    return true;
  }

  const ProcessSets& process_sets(int rank) const { return ranks_[rank].engine->process_sets(); }
  CounterValues counters(int rank) const { return ranks_[rank].engine->counters().snapshot(); }
  TimePoint now() const { return clock_.now(); }
  /// Whether a rank moves the data of an operation.
  bool is_moving_data() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.moving > 0; });
  }
  bool finished(int rank) const { return ranks_[rank].engine->finished(); }
  /// The ending of the engine; Code::ok before it has ended.
  const Ending& ending(int rank) const { return ranks_[rank].ending; }

 private:
  static constexpr int kQuietTurns = 20;  ///< per rank; almost surely every rank has had a turn

  struct Rank {
    int number = 0;
    std::unique_ptr<Engine> engine;
    std::vector<Wire*> wires;
    SimWaiter* waiter = nullptr;
    std::vector<int> local_peers{};  ///< that see the end of its process
    int moving = 0;                  ///< runs that move data
    Ending ending{Code::ok, kNoRank, ""};
    bool lost = false;
    bool stopped = false;
    bool runs() const { return !lost && !stopped; }
  };
  using Wirings = std::vector<Wiring>;
  using Channels = std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>;
  std::unique_ptr<Channel> channel(int rank, int peer, std::unique_ptr<MemLink> link);
  Channels link(int first, int second);
  void share_memory(Wirings& wirings, const Topology& topology, const Knobs& knobs);
  void link_all(Wirings& wirings);
  void link_tree(Wirings& wirings, const Topology& topology);
  bool step();
  bool turn(Rank& rank);
  void end_process(int rank);
  bool pass_time();

  const int quiet_turns_;  ///< larger if runs need turns without progress
  int quiet_ = 0;          ///< turns in which nothing has moved since something has changed
  const size_t least_link_bytes_;
  const bool keeps_connections_;
  std::mt19937_64 random_;
  ManualClock clock_;
  std::optional<TimePoint> alarm_;
  std::vector<std::unique_ptr<SegmentMemory>> memories_;  ///< must outlive the engines
  std::vector<Rank> ranks_;
};

/// Makes requests like a binding. The caller owns the memory.
Request request(OperationKind kind, const std::string& name);
Request allreduce(const std::string& name, std::vector<float>& tensor, ReduceOp op = ReduceOp::sum);
Request allgather(const std::string& name, std::vector<float>& tensor);
Request broadcast(const std::string& name, std::vector<float>& tensor, int root);
Request barrier(const std::string& name);
Request join();
/// `members`: global ranks, ascending.
Request add_process_set(const std::vector<int>& members);
Request remove_process_set(const ProcessSet& set);
/// Returns the request for a process set.
Request on(const ProcessSet& set, Request request);

}  // namespace hvd::sim
