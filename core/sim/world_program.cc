#include "core/sim/world_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <utility>

namespace hvd::sim {
namespace {

using enum WorldIngredient;

constexpr std::array kReduced = {DType::uint8,   DType::int8,     DType::int16,   DType::int32,
                                 DType::int64,   DType::float16,  DType::float32, DType::float64,
                                 DType::boolean, DType::bfloat16, DType::float32};
constexpr std::array kFloating = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr std::array kSummed = {DType::uint8,   DType::int32,   DType::int64,   DType::float16,
                                DType::float32, DType::float64, DType::bfloat16};
/// Sets of one, two and more members for 2 to 6 ranks.
const std::vector<std::vector<int>> kHosts = {
    {2}, {3}, {4}, {6}, {1, 1}, {2, 1}, {2, 2}, {3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 3}, {2, 1, 2}};
constexpr size_t kMostSets = 4;

class Drawing {
 public:
  explicit Drawing(uint64_t seed) : random_(seed) {}

  WorldProgram draw() {
    draw_job();
    stages_ = 1 + below(3);
    for (int stage = 0; stage < stages_; ++stage) draw_stage(stage);
    if (has(sets_added) && chance(50)) remove_all_sets();
    draw_end();
    return std::move(program_);
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class Range>
  auto& one_of(Range& range) {
    return range[static_cast<size_t>(below(static_cast<int>(std::size(range))))];
  }
  bool has(WorldIngredient what) const { return program_.census.has(what); }
  void count(WorldIngredient what, bool happens = true) {
    if (happens) program_.census.count(what);
  }

  // ---- the job

  void draw_job() {
    program_.ranks_per_host = one_of(kHosts);
    program_.shared_memory = chance(60);
    constexpr std::array<int64_t, 5> kFusion = {0, 64, 4096, 20000, int64_t{128} << 20};
    constexpr std::array<int64_t, 5> kCapacity = {0, 1, 2, 4, 1024};
    Knobs& knobs = program_.knobs;
    knobs.fusion_bytes = one_of(kFusion);
    knobs.cache_capacity = one_of(kCapacity);
    knobs.staging_bytes = 16 << 10;
    knobs.allreduce_algorithm = static_cast<AlgorithmChoice>(below(7));
    knobs.deterministic = chance(25);
    knobs.hierarchical_allreduce = chance(30);
    knobs.hierarchical_allgather = chance(30);
    knobs.disable_group_fusion = chance(30);
    knobs.stall_check_disable = true;
    knobs.heartbeat = {};
    count_job();
  }

  void count_job() {
    const std::vector<int>& hosts = program_.ranks_per_host;
    const Knobs& knobs = program_.knobs;
    count(hosts.size() == 1 ? one_host : hosts.size() == 2 ? two_hosts : three_hosts);
    const bool neighbours = std::ranges::any_of(hosts, [](int ranks) { return ranks > 1; });
    const bool shares = program_.shared_memory && neighbours;
    count(!shares ? links : hosts.size() > 1 ? shared_memory_and_links : shared_memory);
    const bool equal = std::ranges::all_of(hosts, [&](int n) { return n > 1 && n == hosts[0]; });
    count(levels, hosts.size() > 1 && equal &&
                      ((knobs.hierarchical_allreduce && !knobs.deterministic) ||
                       knobs.hierarchical_allgather));
    count(deterministic, knobs.deterministic);
    count(no_fusion, knobs.fusion_bytes == 0);
    count(little_fusion, knobs.fusion_bytes > 0 && knobs.fusion_bytes <= 4096);
    count(no_cache, knobs.cache_capacity == 0);
    count(small_cache, knobs.cache_capacity > 0 && knobs.cache_capacity <= 4);
  }

  void draw_end() {
    program_.launches = chance(25);
    count(launched_runs, program_.launches);
    count(more_names_than_slots, retires_slots());
    count(overlapping_sets, overlaps_);
    count(several_join_rounds, program_.census.of(join_rounds) > 1);
    const bool everything = has(join_rounds) && has(sets_added) && has(changes) &&
                            has(mismatches) && has(more_names_than_slots);
    count(mixed, everything);
    if (!chance(60)) return count(without_faults);
    program_.faults = draw_faults(random_, {.ranks_per_host = program_.ranks_per_host,
                                            .shared_memory = program_.shared_memory});
    if (program_.faults.needs_heartbeat() || chance(20)) program_.knobs.heartbeat = kSimHeartbeat;
    count(root_faults, program_.faults.ranks.front() == 0);
    count(mixed_with_fault, everything);
  }

  bool retires_slots() const {
    std::map<int, std::set<std::string>> names;
    for (const Item& item : program_.items) {
      if (item.any().operation.kind != OperationKind::message) names[item.set].insert(item.name);
    }
    return std::ranges::any_of(names, [&](const auto& of_group) {
      return static_cast<int64_t>(of_group.second.size()) > program_.knobs.cache_capacity;
    });
  }

  // ---- a stage

  void draw_stage(int stage) {
    const int length = 2 + below(12);
    const bool joins = chance(45);
    program_.stage_joins.push_back(joins);
    stage_ = stage;
    count(join_rounds, joins);
    std::vector<int> cutoffs(static_cast<size_t>(program_.size()), length);
    if (joins) {
      const int last = below(program_.size());
      for (int rank = 0; rank < program_.size(); ++rank) {
        if (rank != last) cutoffs[rank] = below(length + 1);
      }
    }
    for (int i = 0; i < length; ++i) {
      present_.clear();
      for (int rank = 0; rank < program_.size(); ++rank) {
        if (i < cutoffs[rank]) present_.push_back(rank);
      }
      draw_item();
    }
  }

  bool all_present() const { return static_cast<int>(present_.size()) == program_.size(); }

  std::vector<int> present_of(int set) const {
    std::vector<int> present;
    std::ranges::set_intersection(present_, program_.members_of(set), std::back_inserter(present));
    return present;
  }

  bool all_present_of(int set) const {
    return std::ranges::includes(present_, program_.members_of(set));
  }

  void draw_item() {
    if (chance(14) && live_.size() < kMostSets) return add_set();
    if (chance(8) && !live_.empty() && all_present()) return remove_set(one_of(live_));
    if (chance(15) && program_.size() > 1) return add_message();
    std::vector<int> usable = {kWorldSet};
    for (const int set : live_) {
      if (!present_of(set).empty()) usable.push_back(set);
    }
    const int set = one_of(usable);
    Item item = operation(set, present_of(set));
    if (!all_present_of(set) && item.any().operation.kind != OperationKind::allreduce) {
      item.fate = Fate::mismatch;
      count(joined_faults);
    } else if (item.calls.size() > 1 && chance(10)) {
      make_odd(item);
    } else {
      count_operation(item);
    }
    append(std::move(item));
  }

  /// At least one of the two ranks has not joined.
  void add_message() {
    std::vector<int> ends = {one_of(present_), below(program_.size())};
    if (ends.front() == ends.back()) return;
    std::ranges::sort(ends);
    Item item{.name = fmt::format("m{}", below(3))};
    Call call{.operation = {.kind = OperationKind::message, .root = one_of(ends)}};
    call.operation.dtype = static_cast<DType>(below(static_cast<int>(kLastDType) + 1));
    call.members = ends;
    for (int tensors = chance(70) ? 1 : 3; tensors > 0; --tensors)
      call.shapes.push_back(draw_shape(true));
    for (const int rank : ends) {
      if (!std::ranges::binary_search(present_, rank)) continue;
      item.calls[rank] = call;
      item.calls[rank].in_place = rank == call.operation.root || chance(50);
    }
    if (item.calls.size() < 2) {
      item.fate = Fate::mismatch;
      count(joined_faults);
    } else if (chance(10)) {
      item.fate = Fate::mismatch;
      count(mismatches);
      differ(item.calls.begin()->second, below(2));
    } else {
      count(messages);
    }
    append(std::move(item));
  }

  void count_operation(const Item& item) {
    const Call& call = item.any();
    constexpr std::array kKinds = {allreduces, allgathers,     broadcasts,
                                   alltoalls,  reducescatters, barriers};
    count(kKinds[static_cast<size_t>(call.operation.kind)]);
    count(on_sets, item.set != kWorldSet);
    count(stand_ins, !all_present_of(item.set));
    count(stand_ins_in_sets, item.set != kWorldSet && !all_present_of(item.set));
    const bool reduces = call.operation.kind == OperationKind::allreduce ||
                         call.operation.kind == OperationKind::reducescatter;
    constexpr std::array kOps = {averages, allreduces, adasums, minima, maxima, products};
    count(kOps[static_cast<size_t>(call.operation.op)],
          reduces && call.operation.op != ReduceOp::sum);
    count(scaled, call.operation.prescale != 1.0 || call.operation.postscale != 1.0);
    count(half_types,
          call.operation.dtype == DType::float16 || call.operation.dtype == DType::bfloat16);
    count(grouped, call.shapes.size() > 1);
    count(in_place, call.in_place);
    count(overlapping_tensors, call.placement.elements > 0);
    count(few_rows, call.operation.kind == OperationKind::reducescatter &&
                        call.shapes[0][0] < static_cast<int64_t>(item.calls.size()));
    for (const auto& [rank, of_rank] : item.calls) {
      count(empty_tensors, std::ranges::any_of(of_rank.shapes, [](const Shape& shape) {
              return element_count(shape) == 0;
            }));
    }
  }

  /// Adds the item and its dependencies.
  void append(Item item) {
    item.stage = stage_;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      const Item& earlier = program_.items[i];
      const bool same_name = earlier.set == item.set && earlier.name == item.name;
      const bool creates = item.set != kWorldSet && earlier.target == item.set &&
                           earlier.any().operation.kind == OperationKind::add_process_set;
      if (same_name || creates) item.done_before.push_back(i);
    }
    program_.items.push_back(std::move(item));
  }

  // ---- operations

  Item operation(int set, const std::vector<int>& participants) {
    Item item{.set = set, .name = draw_name()};
    const int size = static_cast<int>(program_.members_of(set).size());
    const Call common = draw_call(set, size);
    const bool overlaps = has_given_outputs(common) && chance(20);
    for (const int rank : participants) {
      item.calls[rank] = of_rank(common, size);
      if (overlaps) place(item.calls[rank], size);
    }
    note_change(item);
    return item;
  }

  std::string draw_name() {
    if (chance(25)) {
      count(one_time_names);
      return fmt::format("once.{}", next_++);
    }
    return fmt::format("t{}", below(5));
  }

  void note_change(const Item& item) {
    const Call& now = item.any();
    const auto [last, is_new] = last_calls_.try_emplace({item.set, item.name}, now);
    const Call& before = last->second;
    count(changes,
          !is_new && (before.operation.kind != now.operation.kind ||
                      before.operation.dtype != now.operation.dtype ||
                      before.shapes != now.shapes || before.operation.op != now.operation.op));
    last->second = now;
  }

  Call draw_call(int set, int size) {
    constexpr std::array kMix = {OperationKind::allreduce,     OperationKind::allreduce,
                                 OperationKind::allreduce,     OperationKind::allreduce,
                                 OperationKind::allgather,     OperationKind::broadcast,
                                 OperationKind::alltoall,      OperationKind::reducescatter,
                                 OperationKind::reducescatter, OperationKind::barrier};
    Call call{.operation = {.kind = one_of(kMix)}};
    if (call.operation.kind == OperationKind::barrier) return call;
    call.operation.dtype = static_cast<DType>(below(static_cast<int>(kLastDType) + 1));
    if (call.operation.kind == OperationKind::allreduce) draw_reduction(call, size);
    if (call.operation.kind == OperationKind::reducescatter) {
      call.operation.op = chance(50) ? ReduceOp::sum : ReduceOp::average;
      call.operation.dtype = one_of(kSummed);
    }
    if (call.operation.kind == OperationKind::broadcast)
      call.operation.root = one_of(members_ = program_.members_of(set));
    const int tensors =
        call.operation.kind == OperationKind::alltoall || chance(60) ? 1 : 2 + below(3);
    const bool scalars = call.operation.kind == OperationKind::allreduce ||
                         call.operation.kind == OperationKind::broadcast;
    for (int i = 0; i < tensors; ++i) call.shapes.push_back(draw_shape(scalars));
    call.in_place = scalars && chance(50);
    call.fuse_with_others = tensors == 1 || !program_.knobs.disable_group_fusion;
    return call;
  }

  void draw_reduction(Call& call, int size) {
    call.operation.op = static_cast<ReduceOp>(below(static_cast<int>(kLastReduceOp) + 1));
    if (call.operation.op == ReduceOp::adasum && !std::has_single_bit(static_cast<unsigned>(size)))
      call.operation.op = ReduceOp::sum;
    const bool compares = call.operation.op == ReduceOp::min || call.operation.op == ReduceOp::max;
    call.operation.dtype = call.operation.op == ReduceOp::adasum ? one_of(kFloating)
                           : compares                            ? one_of(kReduced)
                                                                 : one_of(kSummed);
    if (call.operation.dtype == DType::boolean || call.operation.op == ReduceOp::product) return;
    constexpr std::array kScales = {1.0, 1.0, 0.5, 2.0};
    call.operation.prescale = one_of(kScales);
    call.operation.postscale = one_of(kScales);
  }

  /// Rarely large enough for several units.
  Shape draw_shape(bool may_be_scalar) {
    if (may_be_scalar && chance(10)) return {};
    const int64_t rows = chance(10) ? 0 : chance(10) ? 200 + below(1500) : 1 + below(9);
    Shape shape = {rows};
    if (chance(50)) shape.push_back(chance(8) ? 0 : 1 + below(5));
    return shape;
  }

  Call of_rank(Call call, int size) {
    if (call.operation.kind == OperationKind::allgather) {
      for (Shape& shape : call.shapes)
        shape[0] = chance(20) ? 0 : below(static_cast<int>(shape[0]) + 5);
    }
    if (call.operation.kind == OperationKind::alltoall) {
      for (int to = 0; to < size; ++to) call.splits.push_back(chance(25) ? 0 : below(6));
      call.shapes[0][0] = std::accumulate(call.splits.begin(), call.splits.end(), 0) +
                          (chance(20) ? 1 + below(3) : 0);
    }
    return call;
  }

  static bool has_given_outputs(const Call& call) {
    return call.operation.kind == OperationKind::allreduce ||
           call.operation.kind == OperationKind::broadcast ||
           call.operation.kind == OperationKind::reducescatter;
  }

  void place(Call& call, int size) {
    std::vector<TensorElements> tensors;
    for (const Shape& shape : call.shapes) {
      const auto input = static_cast<size_t>(element_count(shape));
      const auto ranks = static_cast<size_t>(size);
      const bool scatters = call.operation.kind == OperationKind::reducescatter && input > 0;
      const size_t rows = scatters ? static_cast<size_t>(shape[0]) : 1;
      tensors.push_back({input, scatters ? input / rows * ((rows + ranks - 1) / ranks) : input});
    }
    call.placement = draw_placement(random_, tensors);
  }

  /// Some ranks, but not all, submit a different operation.
  void make_odd(Item& item) {
    item.fate = Fate::mismatch;
    count(mismatches);
    const int way = below(4);
    const auto odd_one = std::next(item.calls.begin(), below(static_cast<int>(item.calls.size())));
    for (auto call = item.calls.begin(); call != item.calls.end(); ++call) {
      if (call == odd_one || (item.calls.size() > 2 && call != std::next(odd_one) &&
                              call != item.calls.begin() && chance(20)))
        differ(call->second, way);
    }
  }

  void differ(Call& call, int way) {
    if (call.operation.kind == OperationKind::barrier) {
      call.operation.kind = OperationKind::allreduce;
      call.shapes = {{3}};
    } else if (way == 0) {
      call.shapes[0].push_back(2);
    } else if (way == 1) {
      call.operation.dtype =
          call.operation.dtype == DType::float64 ? DType::float32 : DType::float64;
    } else if (way == 2 && call.operation.kind == OperationKind::allreduce) {
      call.operation.op = call.operation.op == ReduceOp::min ? ReduceOp::max : ReduceOp::min;
    } else {
      call = {};
    }
  }

  // ---- process sets

  Item of_all(OperationKind kind, int target) {
    Item item{.name = "process_sets", .target = target};
    for (const int rank : present_) item.calls[rank].operation.kind = kind;
    return item;
  }

  void add_set() {
    std::vector<int> members;
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (chance(60)) members.push_back(rank);
    }
    const auto same = [&](int set) { return program_.sets[set] == members; };
    if (members.empty() || static_cast<int>(members.size()) == program_.size() ||
        std::ranges::any_of(live_, same))
      return;
    Item item = of_all(OperationKind::add_process_set, static_cast<int>(program_.sets.size()));
    for (auto& [rank, call] : item.calls) call.members = members;
    const bool disagree = all_present() && chance(10);
    if (disagree) item.calls.rbegin()->second.members = {members[0], program_.size()};
    if (disagree || !all_present()) {
      item.fate = Fate::mismatch;
      item.target = kWorldSet;
      count(sets_refused);
      return append(std::move(item));
    }
    for (const int set : live_) overlaps_ |= overlap(program_.sets[set], members);
    live_.push_back(item.target);
    program_.sets.push_back(std::move(members));
    count(sets_added);
    append(std::move(item));
  }

  static bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
    return std::ranges::any_of(a, [&](int rank) { return std::ranges::binary_search(b, rank); });
  }

  void remove_set(int set) {
    const bool in_use = chance(50);
    // A rank that joins before the set is removed counts as present for the removal.
    const bool ranks_join = program_.stage_joins.back() || stage_ + 1 < stages_;
    const bool may_leave_orphan = in_use && !ranks_join;
    if (may_leave_orphan && program_.sets[set].size() > 1) add_orphan(set);
    Item item = of_all(OperationKind::remove_process_set, set);
    append(std::move(item));
    Item& removal = program_.items.back();
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (program_.items[i].set != set) continue;
      const bool clean = !in_use && program_.items[i].fate != Fate::orphan;
      (clean ? removal.done_before : removal.submitted_before).push_back(i);
    }
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (program_.items[i].target == set && &program_.items[i] != &removal)
        removal.done_before.push_back(i);
    }
    std::erase(live_, set);
    count(sets_removed);
    count(sets_removed_in_use, in_use);
  }

  void add_orphan(int set) {
    Item item = operation(set, program_.sets[set]);
    item.name = fmt::format("orphan.{}", next_++);
    item.fate = Fate::orphan;
    item.calls.erase(std::next(item.calls.begin(), below(static_cast<int>(item.calls.size()))));
    count(orphans);
    append(std::move(item));
  }

  void remove_all_sets() {
    present_ = program_.members_of(kWorldSet);
    ++stage_;
    program_.stage_joins.push_back(false);
    while (!live_.empty()) remove_set(live_.front());
  }

  std::mt19937_64 random_;
  WorldProgram program_;
  int stages_ = 0;
  int stage_ = 0;
  std::vector<int> present_;  ///< ranks that have not joined in this stage
  std::vector<int> live_;     ///< sets
  std::vector<int> members_;
  std::map<std::pair<int, std::string>, Call> last_calls_;
  bool overlaps_ = false;
  int next_ = 0;
};

}  // namespace

int WorldProgram::size() const {
  return std::accumulate(ranks_per_host.begin(), ranks_per_host.end(), 0);
}

std::vector<int> WorldProgram::members_of(int set) const {
  if (set != kWorldSet) return sets[static_cast<size_t>(set)];
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

WorldProgram draw_program(uint64_t seed) { return Drawing(seed).draw(); }

}  // namespace hvd::sim
