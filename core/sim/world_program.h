// What the ranks of a simulated job do, drawn from a seed: operations of every kind on the world
// and on process sets that come and go, joins, changed and mismatched signatures, perhaps a lost
// rank. Values; world_run.h carries them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/negotiate/signature.h"
#include "core/sim/census.h"
#include "core/sim/placement.h"

namespace hvd::sim {

enum class WorldIngredient : uint8_t {
  // Operations, one a group of ranks, by what they are meant to be.
  allreduces,
  averages,
  adasums,
  minima,
  maxima,
  products,
  allgathers,
  broadcasts,
  alltoalls,
  reducescatters,
  few_rows,  ///< a reducescatter of fewer rows than ranks
  barriers,
  grouped,
  empty_tensors,
  half_types,
  scaled,
  in_place,
  overlapping_tensors,  ///< of one operation
  changes,              ///< a name comes back with another signature
  one_time_names,
  duplicates,     ///< refused on one rank: the name is in flight there
  on_sets,        ///< on a process set
  mismatches,     ///< ranks disagree
  joined_faults,  ///< not an allreduce, while somebody has joined
  stand_ins,      ///< allreduces without those who have joined
  // Process sets and joins.
  sets_added,
  sets_removed,
  sets_removed_in_use,
  sets_refused,
  orphans,  ///< fail with their process set
  overlapping_sets,
  stand_ins_in_sets,  ///< allreduces of a set without those of its ranks that have joined
  join_rounds,
  several_join_rounds,  ///< in one program
  // Jobs.
  one_host,
  two_hosts,
  three_hosts,
  shared_memory,
  links,
  shared_memory_and_links,
  levels,
  deterministic,
  no_fusion,
  little_fusion,
  no_cache,
  small_cache,
  more_names_than_slots,  ///< in one group: slots are retired
  shutdowns,
  losses,
  mixed,  ///< joins, process sets, changed signatures, mismatches, more names than slots
  mixed_with_loss,
};
inline constexpr size_t kWorldIngredients =
    static_cast<size_t>(WorldIngredient::mixed_with_loss) + 1;
std::string_view name_of(WorldIngredient ingredient);
using WorldCensus = Tally<WorldIngredient, kWorldIngredients>;

/// What one rank asks for.
struct Call {
  OperationKind kind = OperationKind::barrier;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;                    ///< global
  std::vector<Shape> shapes{};     ///< of this rank's inputs
  std::vector<int32_t> splits{};   ///< alltoall
  std::vector<int32_t> members{};  ///< add_process_set
  bool in_place = false;           ///< allreduce, broadcast: the output is the input
  Placement placement{};           ///< of this rank's tensors, where they share memory
  bool fuse_with_others = true;
};

enum class Fate : uint8_t {
  completes,
  mismatch,  ///< every rank that submits it is told
  orphan,    ///< not all submit it, and it fails with its process set
};

inline constexpr int kWorldSet = -1;

/// One operation of a group.
struct Item {
  int set = kWorldSet;  ///< an index of WorldProgram::sets
  std::string name;
  Fate fate = Fate::completes;
  int stage = 0;
  int target = kWorldSet;             ///< add_process_set, remove_process_set: which one
  std::map<int, Call> calls{};        ///< by global rank: who submits it
  std::vector<size_t> done_before{};  ///< items that a rank completes before it submits this one
  std::vector<size_t> submitted_before{};  ///< items that it has submitted before

  const Call& any() const { return calls.begin()->second; }
};

struct WorldProgram {
  std::vector<int> ranks_per_host;
  bool shared_memory = false;
  Knobs knobs{};
  std::vector<std::vector<int>> sets{};  ///< members, ascending; some of them come again
  std::vector<Item> items{};
  /// [stage] ranks end it by a join, when they have submitted what they do in it.
  std::vector<bool> stage_joins{};
  int lost = -1;         ///< a rank, or nobody
  int lost_after = 0;    ///< steps of the job
  WorldCensus census{};  ///< of what was drawn

  int size() const;
  std::vector<int> members_of(int set) const;
};

WorldProgram draw_program(uint64_t seed);

}  // namespace hvd::sim
