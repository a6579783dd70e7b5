// The random program of a simulated job: operations of every kind on the world and on process sets
// that are added and removed, joins, changed and mismatched signatures, perhaps a fault. Value
// types; world_run.h runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/negotiate/signature.h"
#include "core/sim/census.h"
#include "core/sim/faults.h"
#include "core/sim/placement.h"

namespace hvd::sim {

enum class WorldIngredient : uint8_t {
  // Operations by intended result, one count per group of ranks.
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
  messages,
  grouped,
  empty_tensors,
  half_types,
  scaled,
  in_place,
  overlapping_tensors,  ///< of one operation
  changes,              ///< a name is reused with another signature
  one_time_names,
  duplicates,     ///< rejected on one rank: the name is in flight there
  on_sets,        ///< on a process set
  mismatches,     ///< ranks disagree
  joined_faults,  ///< not an allreduce, while a rank has joined
  stand_ins,      ///< allreduces without the ranks that have joined
  // Process sets and joins.
  sets_added,
  sets_removed,
  sets_removed_in_use,
  sets_refused,
  orphans,  ///< fail with their process set
  overlapping_sets,
  stand_ins_in_sets,  ///< allreduces of a set without its ranks that have joined
  join_rounds,
  several_join_rounds,  ///< in one program
  // Jobs.
  one_host,
  two_hosts,
  three_hosts,
  shared_memory,
  links,
  shared_memory_and_links,
  launched_runs,
  levels,
  deterministic,
  no_fusion,
  little_fusion,
  no_cache,
  small_cache,
  more_names_than_slots,  ///< in one group: slots are retired
  without_faults,
  root_faults,           ///< of rank 0
  ranks_given_up,        ///< by a heartbeat
  long_faults_survived,  ///< no rank waited, or not for long enough
  mixed,  ///< joins, process sets, changed signatures, mismatches, more names than slots
  mixed_with_fault,
};
inline constexpr size_t kWorldIngredients =
    static_cast<size_t>(WorldIngredient::mixed_with_fault) + 1;
std::string_view name_of(WorldIngredient ingredient);
using WorldCensus = Tally<WorldIngredient, kWorldIngredients>;

/// The submission of one rank.
struct Call {
  Operation operation{.kind = OperationKind::barrier, .dtype = DType::float32};
  std::vector<Shape> shapes{};     ///< of this rank's inputs
  std::vector<int32_t> splits{};   ///< alltoall
  std::vector<int32_t> members{};  ///< add_process_set, message
  bool in_place = false;           ///< allreduce, broadcast, message: the output is the input
  Placement placement{};           ///< of this rank's tensors, if they share memory
  bool fuse_with_others = true;
};

enum class Fate : uint8_t {
  completes,
  mismatch,  ///< it fails on every rank that submits it
  orphan,    ///< not all submit it, and it fails with its process set
};

inline constexpr int kWorldSet = -1;

/// One operation of a group.
struct Item {
  int set = kWorldSet;  ///< an index of WorldProgram::sets
  std::string name;
  Fate fate = Fate::completes;
  int stage = 0;
  int target = kWorldSet;             ///< add_process_set, remove_process_set: the set
  std::map<int, Call> calls{};        ///< by global rank of the submitting ranks
  std::vector<size_t> done_before{};  ///< items that a rank completes before it submits this one
  std::vector<size_t> submitted_before{};  ///< items that a rank submits before

  const Call& any() const { return calls.begin()->second; }
};

struct WorldProgram {
  std::vector<int> ranks_per_host;
  bool shared_memory = false;
  bool launches = false;  ///< see WorldOptions
  Knobs knobs{};
  std::vector<std::vector<int>> sets{};  ///< members, ascending; some sets occur again
  std::vector<Item> items{};
  /// [stage] ranks end it by a join after their submissions.
  std::vector<bool> stage_joins{};
  FaultPlan faults{};
  WorldCensus census{};  ///< of the drawn program
  FaultCensus fault_census{};

  int size() const;
  std::vector<int> members_of(int set) const;
};

WorldProgram draw_program(uint64_t seed);

}  // namespace hvd::sim
