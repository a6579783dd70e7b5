// A whole job in one process and one thread: real engines over links in memory, stepped in an order
// drawn from a seed, with transfers cut at random lengths. Production code is a step function, so
// nothing has to be faked but the wires, the clock and the sleep. The same seed is the same run.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/group/segment_memory.h"
#include "core/transport/mem_link.h"

namespace hvd::sim {

struct WorldOptions {
  std::vector<int> ranks_per_host = {2};
  uint64_t seed = 1;
  Knobs knobs{};
  /// The ranks of a host move bytes through its segment, of Knobs::staging_bytes a rank.
  bool shared_memory = false;
};

class World {
 public:
  explicit World(const WorldOptions& options);
  /// Ends what has not ended.
  ~World();

  int size() const { return static_cast<int>(ranks_.size()); }

  /// Submits on one rank; the handle ends with the operation, or with the refusal of an ended
  /// engine.
  std::shared_ptr<Operation> submit(int rank, Request request);
  void shutdown(int rank);
  /// The rank stops where it is and its connections break.
  void lose(int rank);

  /// Steps until `done()` or nothing can move any more (then false). Time passes only when nothing
  /// moves and an engine has a deadline, at most `patience` times.
  template <class Done>
  bool run_until(Done done, int patience = 0) {
    for (int quiet = 0; !done();) {
      quiet = step() ? 0 : quiet + 1;
      if (quiet < kQuietSteps * size()) continue;
      if (patience-- <= 0 || !pass_time()) return false;
      quiet = 0;
    }
    return true;
  }

  const ProcessSets& process_sets(int rank) const { return ranks_[rank].engine->process_sets(); }
  bool finished(int rank) const { return ranks_[rank].engine->finished(); }
  /// What the engine told of its end; Code::ok before.
  const Ending& ending(int rank) const { return ranks_[rank].ending; }

 private:
  static constexpr int kQuietSteps = 20;  ///< a rank: enough that each had its turn, nearly surely

  struct Rank {
    std::unique_ptr<Engine> engine;
    std::vector<MemLink*> links;
    Ending ending{Code::ok, kNoRank, ""};
    bool lost = false;
  };
  using Wirings = std::vector<Wiring>;
  using Channels = std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>;
  Channels link(int first, int second);
  void share_memory(Wirings& wirings, const Topology& topology, const Knobs& knobs);
  void link_all(Wirings& wirings);
  void link_tree(Wirings& wirings, const Topology& topology);
  bool step();
  bool turn(Rank& rank);
  bool pass_time();

  std::mt19937_64 random_;
  ManualClock clock_;
  std::vector<std::unique_ptr<SegmentMemory>> memories_;  ///< outlive the engines
  std::vector<Rank> ranks_;
};

/// Requests as a binding makes them. The memory is the caller's.
Request request(OperationKind kind, const std::string& name);
Request allreduce(const std::string& name, std::vector<float>& tensor, ReduceOp op = ReduceOp::sum);
Request allgather(const std::string& name, std::vector<float>& tensor);
Request broadcast(const std::string& name, std::vector<float>& tensor, int root);
Request barrier(const std::string& name);
Request join();
/// `members`: global ranks, ascending.
Request add_process_set(const std::vector<int>& members);
Request remove_process_set(const ProcessSet& set);
/// The same request on a process set.
Request on(const ProcessSet& set, Request request);

}  // namespace hvd::sim
