#include "core/sim/world_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/sim/world.h"
#include "core/sim/world_reference.h"

namespace hvd::sim {
namespace {

/// The part of one rank in an item.
struct Part {
  std::shared_ptr<Completion> completion;  ///< nullptr before the submission
  std::vector<ByteVector> inputs, outputs;
  int released = 0;

  bool is_submitted() const { return completion != nullptr; }
  bool is_done() const { return is_submitted() && completion->handle.done(); }
};

class ProgramRun {
 public:
  ProgramRun(WorldProgram& program, uint64_t seed)
      : program_(program),
        random_(seed ^ 0x9e3779b97f4a7c15),
        ranks_(static_cast<size_t>(program.size())),
        world_({.ranks_per_host = program.ranks_per_host,
                .seed = seed,
                .knobs = program.knobs,
                .shared_memory = program.shared_memory,
                .launches = program.launches}) {
    for (Rank& rank : ranks_) {
      rank.parts = std::vector<Part>(program.items.size());
      rank.joins.resize(program.stage_joins.size());
    }
    submit_percent_ = 5 + static_cast<int>(random_() % 95);
  }

  WorldRun run() {
    while (failure_.empty() && !finished()) advance();
    if (failure_.empty()) end_job();
    if (failure_.empty()) check_everything();
    WorldRun made{.failure = std::nullopt, .digest = digest_ * 31 + static_cast<uint64_t>(steps_)};
    if (!failure_.empty()) made.failure = failure_;
    return made;
  }

 private:
  struct Rank {
    std::vector<Part> parts;                         ///< [item]
    std::vector<std::shared_ptr<Completion>> joins;  ///< [stage]
    std::vector<std::shared_ptr<Completion>> duplicates;
    int stage = 0;
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  bool takes_part(int rank, size_t item) const { return program_.items[item].calls.contains(rank); }
  bool is_lost(int rank) const { return lost_ && rank == program_.lost; }
  bool has_ended(int rank) const { return world_.ending(rank).code != Code::ok; }

  template <class Fact>
  bool all_survivors(Fact fact) const {
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (!is_lost(rank) && !fact(rank)) return false;
    }
    return true;
  }

  bool finished() const {
    if (lost_) return all_survivors([&](int rank) { return has_ended(rank); });
    return program_.lost < 0 && all_survivors([&](int rank) { return has_nothing_to_do(rank); });
  }

  bool has_nothing_to_do(int rank) const {
    const Rank& one = ranks_[rank];
    if (one.stage < stages()) return false;
    const auto done = [](const auto& completion) {
      return !completion || completion->handle.done();
    };
    return std::ranges::all_of(one.joins, done) && std::ranges::all_of(one.duplicates, done) &&
           std::ranges::all_of(one.parts, [&](const Part& part) { return done(part.completion); });
  }

  int stages() const { return static_cast<int>(program_.stage_joins.size()); }

  // ---- one step

  void advance() {
    const bool submitted = below(100) < submit_percent_ && submit_something(below(program_.size()));
    int steps = below(30);
    steps_ += steps;
    if (program_.lost >= 0 && !lost_ && steps_ > program_.lost_after) lose();
    const bool moves = world_.run_until([&] { return steps-- <= 0; }, lost_ ? 3 : 0);
    if (!moves && !submitted && !finished()) submit_anything();
  }

  void lose() {
    lost_ = true;
    world_.lose(program_.lost);
  }

  /// Called without progress: some rank must have something to submit, or the job hangs.
  void submit_anything() {
    for (int i = 0, first = below(program_.size()); i < program_.size(); ++i) {
      if (submit_something((first + i) % program_.size())) return;
    }
    if (program_.lost >= 0 && !lost_) return lose();
    failure_ = "nothing moves, and these are not done:";
    for (int rank = 0; rank < program_.size(); ++rank) {
      failure_ += fmt::format("\n  rank {} in stage {}:", rank, ranks_[rank].stage);
      for (size_t i = 0; i < program_.items.size(); ++i) {
        const Part& part = ranks_[rank].parts[i];
        if (takes_part(rank, i) && !part.is_done())
          failure_ += fmt::format(" {}{}", describe(i), part.is_submitted() ? "" : " (to come)");
      }
    }
  }

  std::string describe(size_t i) const {
    const Item& item = program_.items[i];
    return fmt::format("#{} {} \"{}\" on set {}", i, name_of(item.any().operation.kind), item.name,
                       item.set);
  }

  /// Returns false if this rank cannot submit anything now.
  bool submit_something(int rank) {
    if (is_lost(rank) || has_ended(rank) || ranks_[rank].stage >= stages()) return false;
    std::vector<size_t> ready;
    bool all_submitted = true;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (program_.items[i].stage != ranks_[rank].stage || !takes_part(rank, i)) continue;
      if (ranks_[rank].parts[i].is_submitted()) continue;
      all_submitted = false;
      if (may_submit(rank, i)) ready.push_back(i);
    }
    if (all_submitted) return end_stage(rank);
    if (ready.empty()) return false;
    submit(rank, ready[static_cast<size_t>(below(static_cast<int>(ready.size())))]);
    return true;
  }

  bool may_submit(int rank, size_t item) const {
    const auto& parts = ranks_[rank].parts;
    const Item& it = program_.items[item];
    return std::ranges::all_of(
               it.done_before,
               [&](size_t i) { return !takes_part(rank, i) || parts[i].is_done(); }) &&
           std::ranges::all_of(it.submitted_before, [&](size_t i) {
             return !takes_part(rank, i) || parts[i].is_submitted();
           });
  }

  bool end_stage(int rank) {
    Rank& one = ranks_[rank];
    auto& joined = one.joins[static_cast<size_t>(one.stage)];
    if (program_.stage_joins[static_cast<size_t>(one.stage)]) {
      if (!joined) {
        joined = world_.submit(rank, join());
        return true;
      }
      if (!joined->handle.done()) return false;
    }
    ++one.stage;
    return true;
  }

  // ---- a submission

  void submit(int rank, size_t i) {
    const Item& item = program_.items[i];
    Part& part = ranks_[rank].parts[i];
    Request made = make_request(rank, i);
    made.release = [&part] { ++part.released; };
    const GroupNumber group = made.group;
    part.completion = world_.submit(rank, std::move(made));
    const bool takes_name = item.calls.at(rank).operation.kind != OperationKind::message;
    if (below(100) >= 4 || !takes_name) return;
    Request again = barrier(item.name);  // the name is in flight
    again.group = group;
    ranks_[rank].duplicates.push_back(world_.submit(rank, std::move(again)));
    program_.census.count(WorldIngredient::duplicates);
  }

  Request make_request(int rank, size_t i) {
    const Item& item = program_.items[i];
    const Call& call = item.calls.at(rank);
    Request made = request(call.operation.kind, item.name);
    if (item.set != kWorldSet) made.group = find_set(rank, item.set).group;
    made.signature.members = call.members;
    if (call.operation.kind == OperationKind::remove_process_set) {
      const ProcessSet set = find_set(rank, item.target);
      made.signature.members = set.ranks;
      made.signature.target = set.group;
    }
    if (call.shapes.empty()) return made;
    sign(made.signature, call);
    bind(made, rank, i);
    return made;
  }

  static void sign(Signature& signature, const Call& call) {
    signature.operation = call.operation;
    signature.shapes = Shapes(call.shapes.begin(), call.shapes.end());
    signature.fuse_with_others = call.fuse_with_others;
    if (!has_free_rows(call.operation.kind)) return;
    for (Shape& shape : signature.shapes) shape[0] = kFreeDimension;
  }

  void bind(Request& made, int rank, size_t i) {
    const Call& call = program_.items[i].calls.at(rank);
    Part& part = ranks_[rank].parts[i];
    Completion& completion = *made.completion;
    part.inputs = inputs_of(program_, i, rank);
    part.outputs.resize(part.inputs.size());
    if (call.placement.elements > 0) return bind_in_one_memory(made, call, part.inputs[0].data());
    if (has_free_rows(call.operation.kind))
      completion.outputs.resize(call.shapes.size() + (call.splits.empty() ? 0 : 1));
    for (size_t tensor = 0; tensor < call.shapes.size(); ++tensor) {
      BatchTensor bound{.input = part.inputs[tensor].data(), .shape = call.shapes[tensor]};
      if (has_free_rows(call.operation.kind)) {
        bound.gathered = &completion.outputs[tensor].gathered;
        bound.splits = call.splits;
        if (!call.splits.empty()) bound.received_splits = &completion.outputs.back().gathered;
      } else {
        if (!call.in_place) part.outputs[tensor].resize(part.inputs[tensor].size());
        bound.output = (call.in_place ? part.inputs : part.outputs)[tensor].data();
      }
      made.tensors.push_back(std::move(bound));
    }
  }

  static void bind_in_one_memory(Request& made, const Call& call, std::byte* memory) {
    for (size_t tensor = 0; tensor < call.shapes.size(); ++tensor) {
      const auto [input, output] = call.placement.places[tensor];
      made.tensors.push_back({.input = memory + input * element_bytes(call.operation.dtype),
                              .output = memory + output * element_bytes(call.operation.dtype),
                              .shape = call.shapes[tensor]});
    }
  }

  /// The set as this rank got it when it was added.
  ProcessSet find_set(int rank, int set) const {
    for (size_t i = 0; i < program_.items.size(); ++i) {
      const Item& item = program_.items[i];
      if (item.target == set && item.any().operation.kind == OperationKind::add_process_set)
        return *world_.process_sets(rank).find(ranks_[rank].parts[i].completion->number);
    }
    return {};
  }

  // ---- the end

  void end_job() {
    if (program_.lost < 0) {
      shut_down_by_ = below(program_.size());
      world_.shutdown(shut_down_by_);
    }
    const bool ended = world_.run_until(
        [&] { return all_survivors([&](int rank) { return world_.finished(rank); }); }, 5);
    if (!ended) failure_ = "not every rank comes to its end";
  }

  void check_everything() {
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (is_lost(rank)) continue;
      check_ending(rank);
      for (size_t i = 0; i < program_.items.size(); ++i) {
        if (ranks_[rank].parts[i].is_submitted()) check(rank, i);
      }
      for (const auto& refused : ranks_[rank].duplicates)
        expect_outcome(rank, *refused, Code::invalid_argument, "a duplicate");
      check_joins(rank);
      check_counters(rank);
    }
  }

  void note(int rank, const std::string& what) {
    if (failure_.empty()) failure_ = fmt::format("rank {}: {}", rank, what);
  }

  void check_ending(int rank) {
    const Ending& ending = world_.ending(rank);
    const Code code = lost_ ? Code::peer_lost : Code::shut_down;
    if (ending.code != code || ending.rank != (lost_ ? program_.lost : shut_down_by_))
      note(rank, fmt::format("ended because of rank {}: {}", ending.rank, ending.text));
  }

  /// Returns true if it ended as expected and not because of the loss.
  bool expect_outcome(int rank, const Completion& completion, Code code, const std::string& what) {
    if (!completion.handle.done()) return note(rank, what + " is not done"), false;
    const Outcome& outcome = completion.handle.outcome();
    digest_ = digest_ * 31 + static_cast<uint64_t>(outcome.code);
    if (outcome.code == code) return true;
    const bool by_loss = lost_ && outcome.code == Code::peer_lost && outcome.rank == program_.lost;
    if (!by_loss) note(rank, fmt::format("{} ended with: {}", what, outcome.text));
    return false;
  }

  void check_joins(int rank) {
    for (size_t stage = 0; stage < ranks_[rank].joins.size(); ++stage) {
      const auto& joined = ranks_[rank].joins[stage];
      if (!joined || !expect_outcome(rank, *joined, Code::ok, "join")) continue;
      for (const Rank& other : ranks_) {
        if (!other.joins[stage]) note(rank, "a join ended before all ranks had joined");
        // A lost rank may not have received the end.
        else if (other.joins[stage]->handle.done() &&
                 other.joins[stage]->handle.outcome().code == Code::ok &&
                 other.joins[stage]->number != joined->number)
          note(rank, "ranks name different ones as the last to join");
      }
    }
  }

  // ---- counters

  /// Compares the counters with the outcomes of the operations. After a loss, the number of failed
  /// operations is not known: the engine may have rejected some of them at submission.
  void check_counters(int rank) {
    const CounterValues counted = world_.counters(rank);
    CounterValues expected{};
    bool joins = false;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (ranks_[rank].parts[i].is_submitted()) expect_counted(rank, i, expected);
    }
    for (const auto& joined : ranks_[rank].joins) {
      if (!joined) continue;
      joins = true;
      if (joined->handle.outcome().code == Code::ok)
        ++expected.operations[static_cast<size_t>(OperationKind::join)];
    }
    if (counted.operations != expected.operations) note(rank, "operations are miscounted");
    if (counted.bytes != expected.bytes) note(rank, "bytes are miscounted");
    if (counted.stalls != 0) note(rank, "stalls are counted but there was none");
    if (lost_) return;
    if (counted.failed != expected.failed) note(rank, "failed operations are miscounted");
    if (counted.by_slot + counted.in_full != expected.in_full)
      note(rank, "announced requests are miscounted");
    if (counted.batches_by[static_cast<size_t>(Mover::mpi)] != 0)
      note(rank, "batches moved by MPI are counted but there was none");
    // A rank that has joined takes part in the batches of the other ranks.
    if (joins ? counted.tensors < expected.tensors : counted.tensors != expected.tensors)
      note(rank, fmt::format("{} batched tensors are counted, expected {}", counted.tensors,
                             expected.tensors));
  }

  void expect_counted(int rank, size_t i, CounterValues& expected) const {
    const Call& call = program_.items[i].calls.at(rank);
    ++expected.in_full;
    if (ranks_[rank].parts[i].completion->handle.outcome().code != Code::ok) {
      ++expected.failed;
      return;
    }
    const auto kind = static_cast<size_t>(call.operation.kind);
    ++expected.operations[kind];
    for (const Shape& shape : call.shapes)
      expected.bytes[kind] +=
          static_cast<uint64_t>(element_count(shape)) * element_bytes(call.operation.dtype);
    if (moves_tensors(call.operation.kind)) expected.tensors += call.shapes.size();
  }

  void check(int rank, size_t i) {
    const Item& item = program_.items[i];
    const Part& part = ranks_[rank].parts[i];
    const Code code = item.fate == Fate::completes ? Code::ok : Code::mismatch;
    const bool as_meant = expect_outcome(rank, *part.completion, code, describe(i));
    if (part.completion->handle.done() && part.released != 1 && !has_ended_before(part))
      note(rank, fmt::format("{} was released {} times", describe(i), part.released));
    if (!as_meant) return;
    for (const auto& [other, call] : item.calls) {
      if (!ranks_[other].parts[i].is_submitted())
        note(rank, describe(i) + " ended before all had submitted it");
    }
    if (item.fate == Fate::completes && !item.any().shapes.empty()) compare(rank, i);
    if (item.target != kWorldSet) check_number(rank, i);
  }

  /// Rejected by an ended engine; the request stays with the caller.
  static bool has_ended_before(const Part& part) {
    return part.released == 0 && part.completion->handle.outcome().code == Code::peer_lost;
  }

  void check_number(int rank, size_t i) {
    for (const auto& [other, call] : program_.items[i].calls) {
      const Part& part = ranks_[other].parts[i];
      if (part.is_done() && part.completion->handle.outcome().code == Code::ok &&
          part.completion->number != ranks_[rank].parts[i].completion->number)
        note(rank, describe(i) + " has another id elsewhere");
    }
  }

  void compare(int rank, size_t i) {
    const Call& call = program_.items[i].calls.at(rank);
    const Part& part = ranks_[rank].parts[i];
    const std::vector<Expected> expected = expected_of(program_, i, rank);
    for (size_t output = 0; output < expected.size(); ++output) {
      const std::byte* actual = nullptr;
      if (has_free_rows(call.operation.kind)) {
        const Gathered& gathered = part.completion->outputs[output].gathered;
        if (gathered.shape != expected[output].shape)
          return note(
              rank, fmt::format("{}: output {} has the shape {}, expected {}", describe(i), output,
                                to_text(gathered.shape), to_text(expected[output].shape)));
        actual = gathered.memory.data();
      } else {
        const bool holds_results = call.in_place || call.placement.elements > 0;
        actual = (holds_results ? part.inputs : part.outputs)[output].data();
      }
      const std::string differs = difference(expected[output], actual);
      if (!differs.empty())
        note(rank, fmt::format("{}: output {}: {}", describe(i), output, differs));
    }
  }

  WorldProgram& program_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;  ///< memory of the requests; must outlive the engines
  World world_;
  int submit_percent_ = 50;
  int64_t steps_ = 0;
  bool lost_ = false;
  int shut_down_by_ = -1;
  uint64_t digest_ = 1;
  std::string failure_;
};

}  // namespace

WorldRun run_program(WorldProgram& program, uint64_t seed) {
  return ProgramRun(program, seed).run();
}

}  // namespace hvd::sim
