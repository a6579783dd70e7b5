#include "core/sim/negotiation_program.h"

#include <algorithm>
#include <set>

namespace hvd::sim {
namespace {

using Script = std::vector<Instruction>;
using Scripts = std::vector<Script>;

/// Which features a program uses.
struct Plan {
  bool joins = false;
  bool one_time_names = false;
  bool changes = false;
  bool one_key = false;  ///< much to fuse
  int set_count = 0;
  int epochs = 1;
};

class Author {
 public:
  Author(Dice& dice, Topology topology) : dice_(dice) {
    program_.topology = std::move(topology);
    program_.ranks.resize(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) members_[kWorldSet].push_back(rank);
    plan_.joins = dice.chance(.5);
    plan_.one_time_names = dice.chance(.3);
    plan_.changes = dice.chance(.6);
    plan_.one_key = dice.chance(.5);
    plan_.set_count = dice.chance(.5) ? 1 + dice.below(3) : 0;
    plan_.epochs = 1 + dice.below(2);
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

  void draw_options() {
    constexpr uint32_t kCapacities[] = {0, 1, 2, 3, 5, 64};
    program_.options.slot_capacity = kCapacities[dice_.below(6)];
    program_.options.fusion_bytes =
        dice_.chance(.2) ? 0 : static_cast<uint64_t>(50 + dice_.below(400));
    program_.options.window = dice_.chance(.2) ? 1 << 20 : 1 + dice_.below(3);
  }

  /// Puts what all ranks do in this part behind their scripts so far.
  void append(Scripts& part) {
    for (size_t rank = 0; rank < part.size(); ++rank) {
      Script& script = program_.ranks[rank];
      std::move(part[rank].begin(), part[rank].end(), std::back_inserter(script));
    }
  }

  Scripts new_part() const { return Scripts(program_.ranks.size()); }

  void shuffle(Scripts& part) {
    for (Script& script : part) dice_.shuffle(script);
  }

  // ---- process sets

  int add_set(Scripts& part) {
    const int set = next_set_++;
    std::vector<int32_t>& members = members_[set];
    while (members.empty()) {
      for (int rank = 0; rank < ranks(); ++rank) {
        if (dice_.chance(.5)) members.push_back(rank);
      }
    }
    program_.sets[set] = members;
    Instruction add{.type = Instruction::Type::add_set, .set = set, .tag = next_tag_++};
    add.name = "set" + std::to_string(set);
    add.signature.name = hash_name(add.name);
    add.signature.kind = OperationKind::add_process_set;
    add.signature.members = members;
    program_.expected[add.tag] = Expect::runs;
    for (Script& script : part) script.push_back(add);
    live_sets_.push_back(set);
    return set;
  }

  void add_first_sets() {
    Scripts part = new_part();
    for (int i = 0; i < plan_.set_count; ++i) add_set(part);
    shuffle(part);
    for (Script& script : part) {
      for (const int set : live_sets_) {
        if (set != kWorldSet) script.push_back({.type = Instruction::Type::await_set, .set = set});
      }
    }
    append(part);
  }

  /// Removes the youngest set and makes another. A last operation of the old one comes too late for
  /// some.
  void replace_set() {
    const int old = live_sets_.back();
    live_sets_.pop_back();
    Scripts part = new_part();
    Instruction remove{.type = Instruction::Type::remove_set, .set = old, .tag = next_tag_++};
    remove.name = "unset" + std::to_string(old);
    remove.signature.name = hash_name(remove.name);
    remove.signature.kind = OperationKind::remove_process_set;
    program_.expected[remove.tag] = Expect::runs;
    for (Script& script : part) {
      script.push_back({.type = Instruction::Type::await_own, .set = old});
      script.push_back(remove);
    }
    const int added = add_set(part);
    const std::string name = "op0";
    Instruction orphan{.set = old, .name = name, .tag = next_tag_++};
    orphan.signature = signature(old, name, version_[{old, name}]);
    program_.expected[orphan.tag] = Expect::either;
    const std::vector<int32_t>& members = members_[old];
    for (size_t i = 1; i < members.size(); ++i) {
      if (dice_.chance(.5)) part[static_cast<size_t>(members[i])].push_back(orphan);
    }
    for (Script& script : part) {
      script.push_back({.type = Instruction::Type::await_set, .set = added});
    }
    append(part);
  }

  // ---- operations

  void write_epoch() {
    std::vector<int> steps(program_.ranks.size(), 1 + dice_.below(4));
    if (plan_.joins) {
      for (int& count : steps) count = 1 + dice_.below(5);
    }
    const int most = *std::max_element(steps.begin(), steps.end());
    for (int step = 0; step < most; ++step) write_step(steps, step);
    if (plan_.joins) {
      for (Script& script : program_.ranks) script.push_back({.type = Instruction::Type::join});
    } else if (plan_.set_count > 0 && dice_.chance(.6)) {
      replace_set();
    }
  }

  void write_step(const std::vector<int>& steps, int step) {
    Scripts part = new_part();
    for (const int set : live_sets_) {
      std::vector<int32_t> active;
      for (const int32_t rank : members_[set]) {
        if (steps[static_cast<size_t>(rank)] > step) active.push_back(rank);
      }
      const bool whole = active.size() == members_[set].size();
      if (active.empty() || (set != kWorldSet && !whole)) continue;
      const int names = 1 + dice_.below(6);
      for (int i = 0; i < names; ++i) {
        if (!dice_.chance(.25)) write_operation(part, set, active, whole, i);
      }
    }
    shuffle(part);
    append(part);
  }

  void write_operation(Scripts& part, int set, const std::vector<int32_t>& active, bool whole,
                       int number) {
    const bool once = plan_.one_time_names && dice_.chance(.5);
    const std::string name =
        once ? "once" + std::to_string(next_once_++) : "op" + std::to_string(number);
    int& version = version_[{set, name}];
    if (plan_.changes && dice_.chance(.15)) ++version;
    const Signature agreed = signature(set, name, version);
    const bool split = plan_.changes && active.size() > 1 && dice_.chance(.08);
    const bool in_one_field = dice_.chance(.6);
    const uint64_t tag = next_tag_++;
    const int field = dice_.below(9);
    bool fails = false;
    for (const int32_t rank : active) {
      Signature own = agreed;
      if (split && dice_.chance(.4)) {
        own = in_one_field ? changed(agreed, field)
                           : signature(set, name, version + 1 + dice_.below(2));
      }
      program_.said[tag][rank] = own;
      // Ranks that have joined by then take part in an allreduce only.
      fails |= own != program_.said[tag].begin()->second ||
               (!whole && own.kind != OperationKind::allreduce);
      part[static_cast<size_t>(rank)].push_back(
          {.set = set, .name = name, .signature = std::move(own), .tag = tag});
    }
    program_.expected[tag] = fails ? Expect::fails : Expect::runs;
  }

  /// The same for the same arguments.
  Signature signature(int set, const std::string& name, int version) {
    const NameHash hash =
        hash_name(name + "/" + std::to_string(set) + "/" + std::to_string(version));
    Dice dice(hash.low);
    Signature drawn;
    drawn.name = hash_name(name);
    constexpr OperationKind kKinds[] = {OperationKind::allreduce, OperationKind::allreduce,
                                        OperationKind::allreduce, OperationKind::allgather,
                                        OperationKind::broadcast, OperationKind::barrier};
    drawn.kind = kKinds[dice.below(6)];
    drawn.op = dice.chance(.5) ? ReduceOp::sum : ReduceOp::max;
    drawn.dtype = dice.chance(.5) ? DType::float32 : DType::uint8;
    if (plan_.one_key) {
      drawn.op = ReduceOp::sum;
      drawn.dtype = DType::uint8;
      if (drawn.kind == OperationKind::barrier) drawn.kind = OperationKind::allreduce;
    }
    draw_shapes(dice, drawn);
    const std::vector<int32_t>& members = members_[set];
    if (drawn.kind == OperationKind::broadcast) {
      drawn.root = members[static_cast<size_t>(dice.below(static_cast<int>(members.size())))];
    }
    return drawn;
  }

  void draw_shapes(Dice& dice, Signature& drawn) const {
    if (drawn.kind == OperationKind::barrier) return;
    const int tensors = dice.chance(.8) ? 1 : 2 + dice.below(2);
    for (int i = 0; i < tensors; ++i) {
      Shape& shape = drawn.shapes.emplace_back();
      if (drawn.kind == OperationKind::allgather) shape.push_back(kFreeDimension);
      shape.push_back(dice.below(plan_.one_key ? 60 : 200));
      if (dice.chance(.3)) shape.push_back(1);
    }
  }

  /// Differs in one thing only, in most cases.
  static Signature changed(Signature from, int field) {
    switch (field) {
      case 0:
        from.dtype = DType::int64;
        break;
      case 1:
        from.kind = OperationKind::alltoall;
        break;
      case 2:
        from.shapes.push_back({7});
        break;
      case 3:
        if (!from.shapes.empty()) from.shapes.back().push_back(3);
        break;
      case 4:
        from.prescale = 0.5;
        break;
      case 5:
        from.postscale = 0.25;
        break;
      case 6:
        from.op = ReduceOp::min;
        break;
      case 7:
        from.root += 1;
        break;
      default:
        from.device = DeviceKind::gpu;
        break;
    }
    return from;
  }

  /// One rank forgets everything from some operation of the world on.
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
  std::map<int, std::vector<int32_t>> members_;
  std::vector<int> live_sets_{kWorldSet};
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
