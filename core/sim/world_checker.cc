#include "core/sim/world_checker.h"

#include <algorithm>

#include "core/sim/world_reference.h"

namespace hvd::sim {

WorldChecker::WorldChecker(const WorldProgram& program, const WorldJob& job, const World& world,
                           const Trouble& trouble)
    : program_(program), job_(job), world_(world), trouble_(trouble) {
  for (int rank = 0; rank < program.size(); ++rank)
    lost_ |= world.ending(rank).code == Code::peer_lost;
}

std::string WorldChecker::check() {
  for (int rank = 0; rank < program_.size(); ++rank) {
    if (trouble_.is_killed(rank)) continue;
    check_ending(rank);
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (job_.ranks[rank].parts[i].is_submitted()) check_item(rank, i);
    }
    for (const auto& refused : job_.ranks[rank].duplicates)
      expect_outcome(rank, *refused, Code::invalid_argument, "a duplicate");
    check_joins(rank);
    check_counters(rank);
  }
  return failure_;
}

void WorldChecker::note(int rank, const std::string& what) {
  if (failure_.empty()) failure_ = fmt::format("rank {}: {}", rank, what);
}

// All ranks end alike. A rank that has done its part before the fault may end by the shutdown.
void WorldChecker::check_ending(int rank) {
  const Ending& ending = world_.ending(rank);
  const bool by_shutdown =
      ending.code == Code::shut_down && ending.rank == job_.shut_down_by && ending.rank >= 0;
  const bool by_loss = ending.code == Code::peer_lost && trouble_.may_blame(rank, ending.rank);
  if (!by_shutdown && !by_loss)
    note(rank, fmt::format("ended because of rank {}: {}", ending.rank, ending.text));
}

/// An operation may fail because of the end of the job that was meant to happen.
bool WorldChecker::is_excused(int rank, const Outcome& outcome) const {
  if (outcome.code == Code::peer_lost) return trouble_.may_blame(rank, outcome.rank);
  return outcome.code == Code::shut_down && job_.shut_down_early &&
         outcome.rank == job_.shut_down_by;
}

/// Returns true if it ended as expected and not because of the end of the job.
bool WorldChecker::expect_outcome(int rank, const Completion& completion, Code code,
                                  const std::string& what) {
  if (!completion.handle.done()) return note(rank, what + " is not done"), false;
  const Outcome& outcome = completion.handle.outcome();
  digest_ = digest_ * 31 + static_cast<uint64_t>(outcome.code);
  if (outcome.code == code) return true;
  if (!is_excused(rank, outcome)) note(rank, fmt::format("{} ended with: {}", what, outcome.text));
  return false;
}

void WorldChecker::check_item(int rank, size_t i) {
  const Item& item = program_.items[i];
  const Part& part = job_.ranks[rank].parts[i];
  const Code code = item.fate == Fate::completes ? Code::ok : Code::mismatch;
  const bool as_meant = expect_outcome(rank, *part.completion, code, describe(program_, i));
  check_once(rank, i);
  if (!as_meant) return;
  for (const auto& [other, call] : item.calls) {
    if (!job_.ranks[other].parts[i].is_submitted())
      note(rank, describe(program_, i) + " ended before all had submitted it");
  }
  if (item.fate == Fate::completes && !item.any().shapes.empty()) compare(rank, i);
  if (item.target != kWorldSet) check_number(rank, i);
}

/// A request that an ended engine has rejected stays with the caller.
void WorldChecker::check_once(int rank, size_t i) {
  const Part& part = job_.ranks[rank].parts[i];
  if (!part.completion->handle.done()) return;
  const Code code = part.completion->handle.outcome().code;
  const bool was_rejected =
      part.released == 0 && part.ended == 0 && (code == Code::peer_lost || code == Code::shut_down);
  if (!was_rejected && (part.released != 1 || part.ended != 1))
    note(rank, fmt::format("{} was released {} times and ended {} times", describe(program_, i),
                           part.released, part.ended));
  if (part.ended_well_after_loss) note(rank, describe(program_, i) + " completed after the loss");
}

void WorldChecker::check_number(int rank, size_t i) {
  for (const auto& [other, call] : program_.items[i].calls) {
    const Part& part = job_.ranks[other].parts[i];
    if (part.is_done() && part.completion->handle.outcome().code == Code::ok &&
        part.completion->number != job_.ranks[rank].parts[i].completion->number)
      note(rank, describe(program_, i) + " has another id elsewhere");
  }
}

void WorldChecker::compare(int rank, size_t i) {
  const Part& part = job_.ranks[rank].parts[i];
  const std::vector<Expected> expected = expected_of(program_, i, rank);
  const bool is_gathered = has_free_rows(program_.items[i].calls.at(rank).operation.kind);
  for (size_t output = 0; output < expected.size(); ++output) {
    const std::string what = fmt::format("{}: output {}", describe(program_, i), output);
    if (is_gathered) {
      const Shape& shape = part.completion->outputs[output].gathered.shape;
      if (shape != expected[output].shape)
        return note(rank, fmt::format("{} has the shape {}, expected {}", what, to_text(shape),
                                      to_text(expected[output].shape)));
    }
    const std::string differs = difference(expected[output], result_of(rank, i, output));
    if (!differs.empty()) note(rank, fmt::format("{}: {}", what, differs));
  }
}

const std::byte* WorldChecker::result_of(int rank, size_t i, size_t output) const {
  const Call& call = program_.items[i].calls.at(rank);
  const Part& part = job_.ranks[rank].parts[i];
  if (has_free_rows(call.operation.kind))
    return part.completion->outputs[output].gathered.memory.data();
  const bool holds_results = call.in_place || call.placement.elements > 0;
  return (holds_results ? part.inputs : part.outputs)[output].data();
}

void WorldChecker::check_joins(int rank) {
  for (size_t stage = 0; stage < job_.ranks[rank].joins.size(); ++stage) {
    const auto& joined = job_.ranks[rank].joins[stage];
    if (!joined || !expect_outcome(rank, *joined, Code::ok, "join")) continue;
    for (const RankWork& other : job_.ranks) {
      if (!other.joins[stage]) note(rank, "a join ended before all ranks had joined");
      // A lost rank may not have received the end.
      else if (other.joins[stage]->handle.done() &&
               other.joins[stage]->handle.outcome().code == Code::ok &&
               other.joins[stage]->number != joined->number)
        note(rank, "ranks name different ones as the last to join");
    }
  }
}

/// Compares the counters with the outcomes of the operations. If the job has ended before its
/// operations, the number of failed ones is not known: the engine may have rejected some.
void WorldChecker::check_counters(int rank) {
  const CounterValues counted = world_.counters(rank);
  CounterValues expected{};
  bool joins = false;
  for (size_t i = 0; i < program_.items.size(); ++i) {
    if (job_.ranks[rank].parts[i].is_submitted()) expect_counted(rank, i, expected);
  }
  for (const auto& joined : job_.ranks[rank].joins) {
    if (!joined) continue;
    joins = true;
    if (joined->handle.outcome().code == Code::ok)
      ++expected.operations[static_cast<size_t>(OperationKind::join)];
  }
  if (counted.operations != expected.operations) note(rank, "operations are miscounted");
  if (counted.bytes != expected.bytes) note(rank, "bytes are miscounted");
  if (counted.stalls != 0) note(rank, "stalls are counted but there was none");
  if (lost_ || job_.shut_down_early) return;
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

void WorldChecker::expect_counted(int rank, size_t i, CounterValues& expected) const {
  const Call& call = program_.items[i].calls.at(rank);
  ++expected.in_full;
  if (job_.ranks[rank].parts[i].completion->handle.outcome().code != Code::ok) {
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

}  // namespace hvd::sim
