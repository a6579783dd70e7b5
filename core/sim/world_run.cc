#include "core/sim/world_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/sim/world.h"
#include "core/sim/world_checker.h"
#include "core/sim/world_reference.h"

namespace hvd::sim {
namespace {

// Virtual times. Silent ranks are noticed in the time of the heartbeat, those that have not sent
// anything yet in six times as long. Nothing may last as long as a hang.
constexpr Duration kNoticed = 7 * kSimHeartbeat;
constexpr std::chrono::minutes kHang{10};

class ProgramRun {
 public:
  ProgramRun(WorldProgram& program, uint64_t seed)
      : program_(program),
        random_(seed ^ 0x9e3779b97f4a7c15),
        job_(program),
        world_(options_of(program, seed)),
        trouble_(program.faults, world_) {
    submit_percent_ = 5 + below(95);
  }

  WorldRun run() {
    while (failure_.empty() && !is_complete()) advance();
    if (failure_.empty()) end_job();
    WorldRun made{.failure = std::nullopt, .digest = static_cast<uint64_t>(steps_)};
    if (failure_.empty()) {
      WorldChecker checker(program_, job_, world_, trouble_);
      failure_ = checker.check();
      made.digest += 31 * checker.digest();
    }
    count_outcome();
    if (!failure_.empty()) made.failure = program_.faults.text() + ": " + failure_;
    return made;
  }

 private:
  static constexpr int kMostStepsOfAnEnd = 60;

  /// A rank that is given up finds what it was told: a socket has room for that.
  static WorldOptions options_of(const WorldProgram& program, uint64_t seed) {
    return {.ranks_per_host = program.ranks_per_host,
            .seed = seed,
            .knobs = program.knobs,
            .shared_memory = program.shared_memory,
            .least_link_bytes = program.faults.needs_heartbeat() ? 16 * KiB : size_t{1},
            .heartbeat = program.knobs.heartbeat,
            .launches = program.launches};
  }

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  bool takes_part(int rank, size_t item) const { return program_.items[item].calls.contains(rank); }
  bool has_ended(int rank) const { return world_.ending(rank).code != Code::ok; }

  template <class Fact>
  bool all_survivors(Fact fact) const {
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (!trouble_.is_killed(rank) && !fact(rank)) return false;
    }
    return true;
  }
  bool any_has_ended() const {
    return !all_survivors([&](int rank) { return !has_ended(rank); });
  }

  /// Only the end of the job is left.
  bool is_complete() const {
    if (trouble_.has_begun() && all_survivors([&](int rank) { return has_ended(rank); }))
      return trouble_.is_over();
    const FaultPlan& plan = trouble_.plan();
    const bool at_end = plan.moment == Moment::shutdown;
    if (at_end && job_.shut_down_early) return true;
    if (!trouble_.is_over() && !at_end) return false;
    return all_survivors([&](int rank) { return has_nothing_to_do(rank); });
  }

  bool has_nothing_to_do(int rank) const {
    return job_.ranks[rank].stage >= stages() && !has_pending(rank);
  }

  bool has_pending(int rank) const {
    const RankWork& one = job_.ranks[rank];
    const auto pends = [](const auto& completion) {
      return completion && !completion->handle.done();
    };
    return std::ranges::any_of(one.joins, pends) || std::ranges::any_of(one.duplicates, pends) ||
           std::ranges::any_of(one.parts, [&](const Part& part) { return pends(part.completion); });
  }

  int stages() const { return static_cast<int>(program_.stage_joins.size()); }

  // ---- one step

  void advance() {
    if (trouble_.is_to_come() && steps_ >= trouble_.plan().after) look_for_the_moment();
    const bool submitted = below(100) < submit_percent_ && submit_something(below(program_.size()));
    const bool moves = pass_steps(below(30));
    if (!moves && !submitted && !is_complete()) submit_anything();
  }

  /// Returns false if no rank can make progress.
  bool pass_steps(int steps) {
    steps_ += steps;
    int left = steps;
    const bool moves = world_.run_until([&] { return left-- <= 0; });
    trouble_.passed(steps);
    return moves;
  }

  /// Returns false if the time cannot pass, or nothing has happened for too long.
  bool let_time_pass() {
    const TimePoint before = world_.now();
    world_.run_until([] { return false; }, 1);
    trouble_.passed(0);
    const uint64_t events = count_events();
    if (std::exchange(events_, events) != events) last_event_ = world_.now();
    const bool waits_for_heartbeat = !trouble_.is_over() && any_awaits_silent_rank();
    if (!waits_for_heartbeat) last_awaited_ = world_.now();
    if (world_.now() > last_awaited_ + kNoticed) return false;
    return world_.now() > before && world_.now() < last_event_ + kHang;
  }

  /// A rank that runs has waited since the time passed before.
  bool any_awaits_silent_rank() const {
    if (!trouble_.plan().may_cost_ranks()) return false;
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (trouble_.acts(rank) && !has_ended(rank) && has_pending(rank)) return true;
    }
    return false;
  }

  uint64_t count_events() const {
    uint64_t events = completions_;
    for (int rank = 0; rank < program_.size(); ++rank) events += has_ended(rank) ? 1 : 0;
    return events;
  }

  // ---- trouble

  void look_for_the_moment() {
    const FaultPlan& plan = trouble_.plan();
    if (plan.moment == Moment::shutdown) {
      job_.shut_down_early = plan.between % 2 == 0;
    } else if (moment() == plan.moment) {
      begin_trouble();
    }
  }

  void begin_trouble() {
    program_.fault_census.count(program_.faults.fault, moment());
    trouble_.begin();
  }

  Moment moment() const {
    if (job_.shut_down_by >= 0) return Moment::shutdown;
    bool any = false, joins = false, sets = false, pending = false;
    for (int rank = 0; rank < program_.size(); ++rank) {
      pending |= has_pending(rank);
      for (const auto& joined : job_.ranks[rank].joins) joins |= joined && !joined->handle.done();
      for (size_t i = 0; i < program_.items.size(); ++i) {
        const Part& part = job_.ranks[rank].parts[i];
        any |= part.is_submitted();
        sets |= part.is_submitted() && !part.is_done() && program_.items[i].target != kWorldSet;
      }
    }
    if (!any) return Moment::start;
    if (sets) return Moment::set_creation;
    if (joins) return Moment::join;
    if (world_.is_moving_data()) return Moment::transfer;
    return pending ? Moment::negotiation : Moment::idle;
  }

  /// Counts whether a fault that may cost ranks did so.
  void count_outcome() {
    if (!trouble_.plan().may_cost_ranks() || trouble_.plan().kills()) return;
    program_.census.count(any_has_lost() ? WorldIngredient::ranks_given_up
                                         : WorldIngredient::long_faults_survived);
  }
  bool any_has_lost() const {
    return !all_survivors([&](int rank) { return world_.ending(rank).code != Code::peer_lost; });
  }

  /// Called without progress: some rank must have something to submit, or the job hangs.
  void submit_anything() {
    for (int i = 0, first = below(program_.size()); i < program_.size(); ++i) {
      if (submit_something((first + i) % program_.size())) return;
    }
    if (trouble_.is_to_come() && trouble_.plan().moment != Moment::shutdown) return begin_trouble();
    if (!let_time_pass()) describe_hang();
  }

  void describe_hang() {
    failure_ = "nothing moves, and these are not done:";
    for (int rank = 0; rank < program_.size(); ++rank) {
      failure_ += fmt::format("\n  rank {} in stage {}:", rank, job_.ranks[rank].stage);
      for (size_t i = 0; i < program_.items.size(); ++i) {
        const Part& part = job_.ranks[rank].parts[i];
        if (takes_part(rank, i) && !part.is_done())
          failure_ +=
              fmt::format(" {}{}", describe(program_, i), part.is_submitted() ? "" : " (to come)");
      }
    }
  }

  /// Returns false if this rank cannot submit anything now.
  bool submit_something(int rank) {
    if (!trouble_.acts(rank) || has_ended(rank) || job_.ranks[rank].stage >= stages()) return false;
    std::vector<size_t> ready;
    bool all_submitted = true;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (program_.items[i].stage != job_.ranks[rank].stage || !takes_part(rank, i)) continue;
      if (job_.ranks[rank].parts[i].is_submitted()) continue;
      all_submitted = false;
      if (may_submit(rank, i)) ready.push_back(i);
    }
    if (all_submitted) return end_stage(rank);
    if (ready.empty()) return false;
    submit(rank, ready[static_cast<size_t>(below(static_cast<int>(ready.size())))]);
    return true;
  }

  bool may_submit(int rank, size_t item) const {
    const auto& parts = job_.ranks[rank].parts;
    const Item& it = program_.items[item];
    return std::ranges::all_of(
               it.done_before,
               [&](size_t i) { return !takes_part(rank, i) || parts[i].is_done(); }) &&
           std::ranges::all_of(it.submitted_before, [&](size_t i) {
             return !takes_part(rank, i) || parts[i].is_submitted();
           });
  }

  bool end_stage(int rank) {
    RankWork& one = job_.ranks[rank];
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
    Part& part = job_.ranks[rank].parts[i];
    Request made = make_request(rank, i);
    made.release = [&part] { ++part.released; };
    made.ended = [this, rank, &part](const Outcome& outcome) {
      ++completions_;
      ++part.ended;
      part.ended_well_after_loss =
          outcome.code == Code::ok && world_.ending(rank).code == Code::peer_lost;
    };
    const GroupNumber group = made.group;
    part.completion = world_.submit(rank, std::move(made));
    const bool takes_name = item.calls.at(rank).operation.kind != OperationKind::message;
    if (below(100) >= 4 || !takes_name) return;
    Request again = barrier(item.name);  // the name is in flight
    again.group = group;
    job_.ranks[rank].duplicates.push_back(world_.submit(rank, std::move(again)));
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
    Part& part = job_.ranks[rank].parts[i];
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
        return *world_.process_sets(rank).find(job_.ranks[rank].parts[i].completion->number);
    }
    return {};
  }

  // ---- the end

  void end_job() {
    if (!any_has_ended()) {
      do job_.shut_down_by = below(program_.size());
      while (!trouble_.acts(job_.shut_down_by));
      world_.shutdown(job_.shut_down_by);
    }
    if (trouble_.is_to_come()) {
      pass_steps(below(kMostStepsOfAnEnd));
      begin_trouble();
    }
    const auto finished = [&](int rank) { return world_.finished(rank); };
    while (failure_.empty() && !all_survivors(finished)) {
      if (!pass_steps(below(30)) && !let_time_pass()) failure_ = "not every rank comes to its end";
    }
  }

  WorldProgram& program_;
  std::mt19937_64 random_;
  WorldJob job_;  ///< memory of the requests; must outlive the engines
  World world_;
  Trouble trouble_;
  int submit_percent_ = 50;
  int64_t steps_ = 0;
  uint64_t completions_ = 0;
  uint64_t events_ = 0;  ///< when last_event_ was taken
  TimePoint last_event_{};
  TimePoint last_awaited_{};  ///< no rank waited while another one was silent
  std::string failure_;
};

}  // namespace

WorldRun run_program(WorldProgram& program, uint64_t seed) {
  return ProgramRun(program, seed).run();
}

}  // namespace hvd::sim
