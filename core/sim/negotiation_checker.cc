#include "core/sim/negotiation_checker.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd::sim {
namespace {

template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  fail(Code::internal, fmt::format(format, std::forward<Args>(args)...));
}

using Said = std::map<int, Signature>;

template <class T>
bool differs(const Said& said, T Signature::*member) {
  return std::any_of(said.begin(), said.end(), [&](const auto& entry) {
    return entry.second.*member != said.begin()->second.*member;
  });
}
template <class T>
bool differs(const Said& said, T Operation::*member) {
  return std::any_of(said.begin(), said.end(), [&](const auto& entry) {
    return entry.second.operation.*member != said.begin()->second.operation.*member;
  });
}

/// Returns the text that the error must contain: the first field, in documented order, that
/// differs.
std::string first_difference(const Said& said) {
  if (differs(said, &Operation::dtype)) return "data type";
  if (differs(said, &Operation::kind)) return "operation";
  if (differs(said, &Signature::shapes)) {
    const size_t count = said.begin()->second.shapes.size();
    const bool same_count = std::all_of(said.begin(), said.end(), [&](const auto& entry) {
      return entry.second.shapes.size() == count;
    });
    return same_count ? "shape" : "number of tensors";
  }
  if (differs(said, &Operation::prescale)) return "prescale";
  if (differs(said, &Operation::postscale)) return "postscale";
  if (differs(said, &Operation::op)) return "reduce operation";
  if (differs(said, &Operation::root)) {
    const bool is_message = said.begin()->second.operation.kind == OperationKind::message;
    return is_message ? "sender" : "root rank";
  }
  if (differs(said, &Operation::device)) return "device";
  if (differs(said, &Signature::members)) return "ranks of the process set";
  return "fusion of groups";
}

Ingredient ingredient_of(const Signature& signature) {
  switch (signature.operation.kind) {
    case OperationKind::allreduce:
      return signature.operation.op == ReduceOp::adasum ? Ingredient::adasums
                                                        : Ingredient::allreduces;
    case OperationKind::allgather:
      return Ingredient::allgathers;
    case OperationKind::broadcast:
      return Ingredient::broadcasts;
    case OperationKind::alltoall:
      return Ingredient::alltoalls;
    case OperationKind::reducescatter:
      return Ingredient::reducescatters;
    case OperationKind::barrier:
      return Ingredient::barriers;
    case OperationKind::message:
      return Ingredient::messages;
    default:
      break;
  }
  wrong("a {} runs as a batch", name_of(signature.operation.kind));
}

std::string content(const Action& batch) {
  std::string text = fmt::format("batch {}:", batch.sequence);
  for (const Bound& bound : batch.bound) {
    text += fmt::format(" {:x}/{}", bound.signature->name.low, bound.signature->elements());
  }
  return text;
}

}  // namespace

std::vector<std::pair<int, Action>> NegotiationChecker::begin(int rank, int set,
                                                              const Action& batch) {
  uint64_t& last = last_sequence_[rank];
  if (batch.sequence <= last) wrong("rank {}: batch {} after {}", rank, batch.sequence, last);
  last = batch.sequence;
  const Place place = place_of(set, batch);
  if (!place.second.empty() && !std::ranges::count(place.second, rank))
    wrong("rank {} runs a message between other ranks", rank);
  SharedBatch& shared = batches_[{place, begun_[{rank, place}]++}];
  compare(shared, rank, batch);
  shared.there[rank] = batch;
  const bool all = shared.there.size() == size_of(place);
  if (all) {
    check_somebody_submitted(shared);
    check_may_run_together(batch.bound);
    count(shared);
  }
  // A broadcast or a message ends when the data of the root has arrived, without waiting for other
  // ranks.
  const Signature& first = batch.bound.front().signature;
  const bool has_root = first.operation.kind == OperationKind::broadcast ||
                        first.operation.kind == OperationKind::message;
  const bool root_is_there = has_root && shared.there.contains(first.operation.root);
  std::vector<std::pair<int, Action>> free;
  for (const auto& [other, its_batch] : shared.there) {
    if (!all && !root_is_there) continue;
    if (shared.released.insert(other).second) free.emplace_back(other, its_batch);
  }
  return free;
}

/// All ranks must have the same batches with the same contents in the same order.
void NegotiationChecker::compare(const SharedBatch& shared, int rank, const Action& batch) const {
  for (const Bound& bound : batch.bound) {
    if (bound.mine && program_.expected.at(bound.tag) == Expect::fails) {
      wrong("rank {} runs operation {} about which ranks disagree", rank, bound.tag);
    }
  }
  for (const auto& [other, its_batch] : shared.there) {
    if (content(batch) != content(its_batch)) {
      wrong("rank {} runs {}, rank {} runs {}", rank, content(batch), other, content(its_batch));
    }
    for (size_t i = 0; i < batch.bound.size(); ++i) {
      const Bound& here = batch.bound[i];
      const Bound& there = its_batch.bound[i];
      if (here.mine && there.mine && here.tag != there.tag) {
        wrong("operation {} of rank {} meets {} of rank {}", here.tag, rank, there.tag, other);
      }
    }
  }
}

void NegotiationChecker::check_somebody_submitted(const SharedBatch& shared) const {
  const std::vector<Bound>& first = shared.there.begin()->second.bound;
  for (size_t i = 0; i < first.size(); ++i) {
    const bool any = std::any_of(shared.there.begin(), shared.there.end(),
                                 [&](const auto& entry) { return entry.second.bound[i].mine; });
    if (!any) wrong("a batch runs what nobody has submitted");
  }
}

void NegotiationChecker::check_may_run_together(const std::vector<Bound>& operations) const {
  const Signature& first = operations.front().signature;
  for (const Bound& each : operations) {
    if (operations.size() > 1 && !may_fuse(first, each.signature)) {
      wrong("a {} runs together with a {}", name_of(first.operation.kind),
            name_of(each.signature->operation.kind));
    }
  }
}

void NegotiationChecker::count(const SharedBatch& shared) const {
  const std::vector<Bound>& operations = shared.there.begin()->second.bound;
  census_.count(Ingredient::batches);
  if (operations.size() > 1) census_.count(Ingredient::fused, operations.size());
  for (const Bound& operation : operations) {
    census_.count(ingredient_of(operation.signature));
    if (operation.signature->shapes.size() > 1) census_.count(Ingredient::grouped);
    if (!operation.signature->fuse_with_others) census_.count(Ingredient::kept_apart);
  }
  const bool any_stands_in =
      std::any_of(shared.there.begin(), shared.there.end(), [](const auto& entry) {
        const std::vector<Bound>& bound = entry.second.bound;
        return std::any_of(bound.begin(), bound.end(), [](const Bound& b) { return !b.mine; });
      });
  if (any_stands_in) census_.count(Ingredient::stand_ins);
}

void NegotiationChecker::failed(int rank, const Action& failure) {
  const Expect expected = program_.expected.at(failure.tag);
  if (expected == Expect::runs) wrong("rank {}: {} failed: {}", rank, failure.tag, failure.text);
  failed_.insert(failure.tag);
  if (expected == Expect::either) {
    census_.count(Ingredient::orphans);
    return;
  }
  const Said& said = program_.said.at(failure.tag);
  const bool is_set = said.begin()->second.operation.kind == OperationKind::add_process_set;
  census_.count(is_set ? Ingredient::sets_refused : Ingredient::faults);
  check_mismatch_text(rank, failure);
}

void NegotiationChecker::check_mismatch_text(int rank, const Action& failure) const {
  const Said& said = program_.said.at(failure.tag);
  const bool alike = std::all_of(said.begin(), said.end(), [&](const auto& entry) {
    return entry.second == said.begin()->second;
  });
  const std::string what =
      alike ? "has joined" : "ranks disagree about the " + first_difference(said);
  if (failure.text.find(what) == std::string::npos) {
    wrong("rank {}: expected \"{}\" in: {}", rank, what, failure.text);
  }
  if (alike) return;
  // The expected value is that of the lowest rank that submitted.
  const std::string lowest = fmt::format("rank {} ", said.begin()->first);
  if (failure.text.find(lowest) == std::string::npos) {
    wrong("rank {}: expected \"{}\" in: {}", rank, lowest, failure.text);
  }
}

void NegotiationChecker::all_met() const {
  for (const auto& [key, shared] : batches_) {
    if (shared.there.size() != size_of(key.first)) {
      wrong("batch {} of set {} was not run by all", key.second, key.first.first);
    }
  }
  for (const uint64_t tag : failed_) {
    if (ran_.contains(tag)) wrong("operation {} ran on some ranks and failed on others", tag);
  }
}

NegotiationChecker::Place NegotiationChecker::place_of(int set, const Action& batch) {
  const Signature& first = batch.bound.front().signature;
  const bool is_message = first.operation.kind == OperationKind::message;
  return {set, is_message ? first.members : std::vector<int32_t>{}};
}

size_t NegotiationChecker::size_of(const Place& place) const {
  if (!place.second.empty()) return place.second.size();
  const int set = place.first;
  return set == kWorldSet ? program_.ranks.size() : program_.sets.at(set).size();
}

}  // namespace hvd::sim
