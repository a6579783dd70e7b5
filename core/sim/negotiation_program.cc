#include "core/sim/negotiation_program.h"

#include <algorithm>
#include <set>

namespace hvd::sim {
namespace {

using Script = std::vector<Instruction>;
/// Instructions that stay together, in this order, when the script of a rank is shuffled.
using Block = std::vector<Instruction>;
using Part = std::vector<std::vector<Block>>;  // [rank]
using Ranks = std::vector<int32_t>;

constexpr size_t kMostSets = 5;
constexpr int kMostNames = 6;  // of a set in one part

/// Which features a program uses.
struct Plan {
  bool everything = false;  ///< all features below
  bool joins = false;
  bool one_time_names = false;
  bool changes = false;
  bool messages = false;
  bool one_key = false;        ///< many operations that can be fused
  bool sets_in_midst = false;  ///< added, used at once and removed between other operations
  int set_count = 0;
  int epochs = 1;
};

std::string numbered_name(int number) { return "op" + std::to_string(number); }

/// The submissions of the members of a group for one operation.
using Said = std::map<int, Instruction>;  // by rank

class Author {
 public:
  Author(Dice& dice, Topology topology) : dice_(dice) {
    program_.topology = std::move(topology);
    program_.ranks.resize(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) members_[kWorldSet].push_back(rank);
    plan_.everything = dice.chance(.25);
    plan_.joins = draw_feature(.4);
    plan_.one_time_names = draw_feature(.3);
    plan_.changes = draw_feature(.5);
    plan_.messages = draw_feature(.4);
    plan_.one_key = dice.chance(.4);
    plan_.set_count = draw_feature(.4) ? 1 + dice.below(3) : 0;
    plan_.sets_in_midst = plan_.set_count > 0 && draw_feature(.5);
    plan_.epochs = plan_.everything ? 3 : 1 + dice.below(3);
  }

  Program write() {
    draw_options();
    if (plan_.set_count > 0) add_first_sets();
    for (int epoch = 0; epoch < plan_.epochs; ++epoch) write_epoch();
    for (Script& script : program_.ranks) script.push_back({.type = Instruction::Type::await_all});
    if (dice_.chance(.12)) choose_late_rank();
    return std::move(program_);
  }

 private:
  int ranks() const { return program_.topology.ranks(); }
  bool draw_feature(double probability) { return dice_.chance(probability) || plan_.everything; }
  void count(Ingredient what) { program_.drawn.count(what); }

  void draw_options() {
    struct Capacity {
      uint32_t slots;
      Ingredient ingredient;
    };
    constexpr Capacity kCapacities[] = {
        {0, Ingredient::capacity_none}, {1, Ingredient::capacity_one},
        {2, Ingredient::capacity_two},  {3, Ingredient::capacity_few},
        {5, Ingredient::capacity_few},  {64, Ingredient::capacity_many}};
    const Capacity drawn = kCapacities[plan_.everything ? 1 + dice_.below(4) : dice_.below(6)];
    program_.options.slot_capacity = drawn.slots;
    count(drawn.ingredient);
    program_.options.fusion_bytes =
        dice_.chance(.2) ? 0 : static_cast<uint64_t>(50 + dice_.below(400));
    program_.options.window = dice_.chance(.2) ? 1 << 20 : 1 + dice_.below(3);
  }

  Part new_part() const { return Part(program_.ranks.size()); }

  /// Appends this part to the scripts of all ranks, each in its own order.
  void append(Part& part) {
    for (size_t rank = 0; rank < part.size(); ++rank) {
      dice_.shuffle(part[rank]);
      Script& script = program_.ranks[rank];
      for (Block& block : part[rank]) {
        std::move(block.begin(), block.end(), std::back_inserter(script));
      }
    }
  }

  static void put(Part& part, const Said& said) {
    for (const auto& [rank, instruction] : said)
      part[static_cast<size_t>(rank)].push_back({instruction});
  }

  // ---- process sets

  /// A set that is requested but does not exist yet.
  int draw_set() {
    const int set = next_set_++;
    Ranks& members = members_[set];
    while (members.empty()) members = some_ranks();
    return set;
  }

  Ranks some_ranks() {
    Ranks drawn;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (dice_.chance(.5)) drawn.push_back(rank);
    }
    return drawn;
  }

  static Ranks other_than(const Ranks& members) {
    return members == Ranks{0} ? Ranks{0, 1} : Ranks{0};
  }

  static bool overlap(const Ranks& a, const Ranks& b) {
    return a != b && std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
  }

  Instruction change_of_set(Instruction::Type type, int set, const std::string& name) {
    Instruction change{.type = type, .set = set, .name = name, .tag = next_tag_++};
    change.signature.name = hash_name(name);
    change.signature.operation.kind = type == Instruction::Type::add_set
                                          ? OperationKind::add_process_set
                                          : OperationKind::remove_process_set;
    program_.expected[change.tag] = Expect::runs;
    return change;
  }

  Instruction add_set() {
    const int set = draw_set();
    Instruction add = change_of_set(Instruction::Type::add_set, set, "set" + std::to_string(set));
    add.signature.members = members_[set];
    program_.sets[set] = members_[set];
    for (const int other : live_sets_) {
      const bool overlaps = other != kWorldSet && overlap(members_[set], members_[other]);
      if (overlaps) count(Ingredient::overlapping_sets);
    }
    live_sets_.push_back(set);
    return add;
  }

  void add_first_sets() {
    Part part = new_part();
    for (int i = 0; i < plan_.set_count; ++i) {
      const Instruction add = add_set();
      for (auto& blocks : part) blocks.push_back({add});
    }
    append(part);
    for (Script& script : program_.ranks) {
      for (const int set : live_sets_) {
        if (set != kWorldSet) script.push_back({.type = Instruction::Type::await_set, .set = set});
      }
    }
  }

  /// Adds a set and uses it as soon as it exists on a rank. At most one per part: ranks that wait
  /// for two sets in different orders would deadlock.
  void add_set_in_midst(Part& part) {
    const Instruction add = add_set();
    const int set = add.set;
    for (auto& blocks : part) {
      blocks.push_back({add, {.type = Instruction::Type::await_set, .set = set}});
    }
    for (auto& [rank, use] : operation(set, members_[set], true, "op0")) {
      part[static_cast<size_t>(rank)].back().push_back(std::move(use));
    }
    count(Ingredient::sets_in_midst);
  }

  /// Ranks disagree about a set, or one has joined: the set is not added.
  void ask_in_vain(Part& part, const Ranks& active, bool whole) {
    const int set = draw_set();
    Instruction add = change_of_set(Instruction::Type::add_set, set, "set" + std::to_string(set));
    std::map<int, Signature>& said = program_.said[add.tag];
    for (const int32_t rank : active) {
      const bool is_odd = whole && rank == active.back();
      add.signature.members = is_odd ? other_than(members_[set]) : members_[set];
      said[rank] = add.signature;
      part[static_cast<size_t>(rank)].push_back({add});
    }
    program_.expected[add.tag] = Expect::fails;
  }

  /// Removes a set. An operation in flight on all of its ranks still runs. Another operation may be
  /// submitted too late on some ranks.
  void remove_set(Part& part) {
    const auto place =
        live_sets_.begin() + 1 + dice_.below(static_cast<int>(live_sets_.size()) - 1);
    const int set = *place;
    live_sets_.erase(place);
    const Ranks& members = members_[set];
    const Instruction remove =
        change_of_set(Instruction::Type::remove_set, set, "unset" + std::to_string(set));
    for (auto& blocks : part)
      blocks.push_back({{.type = Instruction::Type::await_own, .set = set}});
    if (dice_.chance(.4)) {
      for (auto& [rank, last] : operation(set, members, true, "last")) {
        part[static_cast<size_t>(rank)].back().push_back(std::move(last));
      }
      count(Ingredient::sets_removed_in_use);
    }
    for (auto& blocks : part) blocks.back().push_back(remove);
    Instruction orphan{.set = set, .name = "orphan", .tag = next_tag_++};
    orphan.signature = signature(set, orphan.name, 0);
    program_.expected[orphan.tag] = Expect::either;
    for (const int32_t rank : members) {
      if (rank == members.front() || dice_.chance(.5)) continue;
      part[static_cast<size_t>(rank)].back().push_back(orphan);
    }
  }

  void replace_set() {
    Part part = new_part();
    remove_set(part);
    add_set_in_midst(part);
    append(part);
  }

  // ---- operations

  void write_epoch() {
    std::vector<int> steps(program_.ranks.size(), 1 + dice_.below(4));
    if (plan_.joins) {
      for (int& count : steps) count = (plan_.everything ? 3 : 1) + dice_.below(4);
    }
    const int most = *std::max_element(steps.begin(), steps.end());
    for (int step = 0; step < most; ++step) write_step(steps, step);
    if (plan_.joins) {
      for (Script& script : program_.ranks) script.push_back({.type = Instruction::Type::join});
    }
    if (live_sets_.size() > 1 && dice_.chance(.5)) replace_set();
  }

  void write_step(const std::vector<int>& steps, int step) {
    Part part = new_part();
    message_names_.clear();
    const auto is_active = [&](int32_t rank) { return steps[static_cast<size_t>(rank)] > step; };
    if (plan_.sets_in_midst) change_sets(part, is_active);
    for (const int set : live_sets_) {
      if (set == new_set_) continue;  // may not exist yet
      Ranks active;
      std::copy_if(members_[set].begin(), members_[set].end(), std::back_inserter(active),
                   is_active);
      const bool whole = active.size() == members_[set].size();
      if (active.empty()) continue;
      if (set != kWorldSet && !whole) count(Ingredient::joined_in_sets);
      const int names = 1 + dice_.below(kMostNames);
      for (int i = 0; i < names; ++i) {
        if (!dice_.chance(.25)) put(part, operation(set, active, whole, draw_name(i)));
      }
    }
    if (plan_.messages) send_messages(part, is_active);
    append(part);
  }

  /// Sometimes that of an operation; new in this part, which each rank submits in its own order.
  std::string draw_message_name(int number) {
    const std::string name = numbered_name(dice_.below(kMostNames));
    if (dice_.chance(.3) || !message_names_.insert(name).second)
      return "message" + std::to_string(number);
    count(Ingredient::messages_with_names_of_operations);
    return name;
  }

  template <class IsActive>
  void send_messages(Part& part, IsActive is_active) {
    for (int number = dice_.below(5); number > 0; --number) {
      Ranks ends{dice_.below(ranks()), dice_.below(ranks())};
      std::sort(ends.begin(), ends.end());
      Ranks active;
      std::copy_if(ends.begin(), ends.end(), std::back_inserter(active), is_active);
      if (ends.front() == ends.back() || active.empty()) continue;
      if (active.size() < 2) count(Ingredient::messages_to_joined);
      const std::string name = draw_message_name(number);
      put(part, message(ends, active, name));
      if (!dice_.chance(.3)) continue;
      for (auto& [rank, again] : message(ends, active, name))
        part[static_cast<size_t>(rank)].back().push_back(std::move(again));
    }
  }

  template <class IsActive>
  void change_sets(Part& part, IsActive is_active) {
    new_set_ = kNoSet;
    Ranks active;
    const Ranks& world = members_[kWorldSet];
    std::copy_if(world.begin(), world.end(), std::back_inserter(active), is_active);
    const bool whole = active.size() == world.size();
    if (active.size() > 1 && dice_.chance(.15)) ask_in_vain(part, active, whole);
    if (!whole) return;
    if (live_sets_.size() > 1 && dice_.chance(.2)) remove_set(part);
    if (live_sets_.size() < kMostSets && dice_.chance(.4)) {
      add_set_in_midst(part);
      new_set_ = live_sets_.back();
    }
  }

  std::string draw_name(int number) {
    const bool once = plan_.one_time_names && dice_.chance(.3);
    if (!once) return numbered_name(number);
    count(Ingredient::one_time_names);
    return "once" + std::to_string(next_once_++);
  }

  /// The submissions of the active ranks of a set under one name. Sometimes they differ.
  Said operation(int set, const Ranks& active, bool whole, const std::string& name) {
    int& version = version_[{set, name}];
    if (plan_.changes && dice_.chance(.15)) {
      ++version;
      count(Ingredient::changes);
    }
    const Signature agreed = signature(set, name, version);
    const bool split = plan_.changes && active.size() > 1 && dice_.chance(.08);
    const bool in_one_field = dice_.chance(.6);
    const uint64_t tag = next_tag_++;
    const int field = dice_.below(10);
    bool fails = false;
    Said said;
    for (const int32_t rank : active) {
      Signature own = agreed;
      if (split && dice_.chance(.4)) {
        own = in_one_field ? changed(agreed, field)
                           : signature(set, name, version + 1 + dice_.below(2));
      }
      program_.said[tag][rank] = own;
      // Ranks that have joined by then take part in allreduces only.
      fails |= own != program_.said[tag].begin()->second ||
               (!whole && own.operation.kind != OperationKind::allreduce);
      said[rank] = {.set = set, .name = name, .signature = std::move(own), .tag = tag};
    }
    program_.expected[tag] = fails ? Expect::fails : Expect::runs;
    return said;
  }

  /// What the active ends submit. In other parts, messages of other ranks have the same name.
  Said message(const Ranks& ends, const Ranks& active, const std::string& name) {
    Signature agreed;
    agreed.name = hash_name(name);
    agreed.operation.kind = OperationKind::message;
    agreed.operation.root = ends[static_cast<size_t>(dice_.below(2))];
    agreed.members = ends;
    agreed.shapes = {{dice_.below(200)}};
    const bool split = plan_.changes && active.size() > 1 && dice_.chance(.15);
    const uint64_t tag = next_tag_++;
    Said said;
    for (const int32_t rank : active) {
      Signature own = split && rank == ends.back() ? changed_message(agreed) : agreed;
      program_.said[tag][rank] = own;
      said[rank] = {.name = name, .signature = std::move(own), .tag = tag};
    }
    program_.expected[tag] = split || active.size() < 2 ? Expect::fails : Expect::runs;
    return said;
  }

  Signature changed_message(Signature from) {
    constexpr int kShape = 3, kDevice = 9;
    if (dice_.chance(.3)) return changed(std::move(from), kShape);
    if (dice_.chance(.3)) return changed(std::move(from), kDevice);
    const auto& ends = from.members;
    from.operation.root = from.operation.root == ends.front() ? ends.back() : ends.front();
    return from;
  }

  /// Deterministic in its arguments.
  Signature signature(int set, const std::string& name, int version) {
    const NameHash hash =
        hash_name(name + "/" + std::to_string(set) + "/" + std::to_string(version));
    Dice dice(hash.low);
    Signature drawn;
    drawn.name = hash_name(name);
    constexpr OperationKind kKinds[] = {
        OperationKind::allreduce, OperationKind::allreduce,     OperationKind::allreduce,
        OperationKind::allreduce, OperationKind::allgather,     OperationKind::broadcast,
        OperationKind::alltoall,  OperationKind::reducescatter, OperationKind::barrier};
    constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::adasum};
    drawn.operation.kind = kKinds[dice.below(9)];
    drawn.operation.op = kOps[dice.below(3)];
    drawn.operation.dtype = dice.chance(.5) ? DType::float32 : DType::uint8;
    if (plan_.one_key) {
      drawn.operation.op = ReduceOp::sum;
      drawn.operation.dtype = DType::uint8;
      if (drawn.operation.kind == OperationKind::barrier)
        drawn.operation.kind = OperationKind::allreduce;
    }
    draw_shapes(dice, drawn);
    const std::vector<int32_t>& members = members_[set];
    if (drawn.operation.kind == OperationKind::broadcast) {
      drawn.operation.root =
          members[static_cast<size_t>(dice.below(static_cast<int>(members.size())))];
    }
    return drawn;
  }

  void draw_shapes(Dice& dice, Signature& drawn) const {
    if (drawn.operation.kind == OperationKind::barrier) return;
    const int tensors = dice.chance(.8) ? 1 : 2 + dice.below(2);
    for (int i = 0; i < tensors; ++i) {
      Shape& shape = drawn.shapes.emplace_back();
      const bool has_free_dimension = drawn.operation.kind == OperationKind::allgather ||
                                      drawn.operation.kind == OperationKind::alltoall;
      if (has_free_dimension) shape.push_back(kFreeDimension);
      shape.push_back(dice.below(plan_.one_key ? 60 : 200));
      if (dice.chance(.3)) shape.push_back(1);
    }
    drawn.fuse_with_others = tensors == 1 || dice.chance(.5);
  }

  /// Changes the signature, usually in one field.
  static Signature changed(Signature from, int field) {
    switch (field) {
      case 0:
        from.operation.dtype = DType::int64;
        break;
      case 1:
        from.operation.kind = from.operation.kind == OperationKind::alltoall
                                  ? OperationKind::allgather
                                  : OperationKind::alltoall;
        break;
      case 2:
        from.shapes.push_back({7});
        break;
      case 3:
        if (!from.shapes.empty()) from.shapes.back().push_back(3);
        break;
      case 4:
        from.operation.prescale = 0.5;
        break;
      case 5:
        from.operation.postscale = 0.25;
        break;
      case 6:
        from.operation.op = ReduceOp::min;
        break;
      case 7:
        from.operation.root += 1;
        break;
      case 8:
        from.fuse_with_others = !from.fuse_with_others;
        break;
      default:
        from.operation.device = DeviceKind::cuda;
        break;
    }
    return from;
  }

  /// Removes the rest of the script of one rank, from a random operation of the world on.
  void choose_late_rank() {
    const int rank = dice_.below(ranks());
    const Script& script = program_.ranks[static_cast<size_t>(rank)];
    for (size_t i = script.size(); i-- > 0;) {
      const bool suits = script[i].type == Instruction::Type::submit && script[i].set == kWorldSet;
      if (!suits || !dice_.chance(.4)) continue;
      program_.late_rank = rank;
      program_.late_at = i;
      return;
    }
  }

  Dice& dice_;
  Plan plan_;
  Program program_;
  static constexpr int kNoSet = -2;
  std::map<int, Ranks> members_;
  std::vector<int> live_sets_{kWorldSet};
  int new_set_ = kNoSet;                 ///< added in the current part
  std::set<std::string> message_names_;  ///< in the current part
  std::map<std::pair<int, std::string>, int> version_;
  int next_set_ = 0;
  uint64_t next_tag_ = 1;
  int next_once_ = 0;
};

}  // namespace

Program make_program(Dice& dice) {
  const int hosts = 1 + dice.below(3);
  const int least = std::max(2, hosts);
  const int ranks = least + dice.below(17 - least);
  std::vector<int> ranks_per_host(static_cast<size_t>(hosts), 1);
  for (int i = hosts; i < ranks; ++i) ++ranks_per_host[static_cast<size_t>(dice.below(hosts))];
  const int fan_out = 1 + dice.below(3);
  return Author(dice, Topology::of(ranks_per_host, fan_out)).write();
}

Program make_large_program(Dice& dice, int hosts) {
  return Author(dice, Topology::of(std::vector<int>(static_cast<size_t>(hosts), 8))).write();
}

}  // namespace hvd::sim
