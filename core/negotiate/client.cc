#include "core/negotiate/client.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/assert.h"
#include "core/negotiate/mismatch.h"

namespace hvd {
namespace {

/// A request that has survived two ticks has waited for at least one whole period.
constexpr uint32_t kStalledTicks = 2;

}  // namespace

Client::Client(int rank, const Topology& topology, NegotiateOptions options)
    : rank_(rank), rules_(options.rules) {
  HVD_ASSERT(rank >= 0 && rank < topology.ranks());
  groups_[kWorldGroup].pacer = 0;
}

Client::Request* Client::Group::find_waiting(const NameHash& name) {
  const auto found = in_flight.find(name);
  return found == in_flight.end() || found->second.runs ? nullptr : &found->second;
}

void Client::Group::erase_waiting(const NameHash& name) {
  in_flight.erase(name);
  --waiting;
}

Submitted Client::submit(GroupNumber number, const std::string& name, const Signature& signature,
                         uint64_t tag) {
  HVD_ASSERT(!is_control(signature.kind) || number == kWorldGroup);
  HVD_ASSERT(signature.kind != OperationKind::remove_process_set ||
             signature.target != kWorldGroup);
  if (ended_) return Submitted::ended;
  if (joined_) return Submitted::joined;
  const auto found = groups_.find(number);
  if (found == groups_.end()) return Submitted::not_a_member;
  Group& group = found->second;
  const auto [place, is_new] = group.in_flight.try_emplace(signature.name);
  if (!is_new) return Submitted::duplicate_name;
  Request& request = place->second;
  request.name = name;
  request.signature = known(group, signature);
  request.tag = tag;
  ++group.waiting;
  announce(number, group, request.signature);
  last_submitted_ = name;
  return Submitted::accepted;
}

bool Client::join() {
  if (ended_ || joined_) return false;
  joined_ = true;
  up_.joined.push_back(rank_);
  return true;
}

void Client::shutdown() {
  if (ended_) return;
  up_.shutdown = true;
  up_.shutdown_by = rank_;
}

void Client::batch_done(GroupNumber number, const std::vector<Bound>& bound) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;  // removed while the batch ran
  for (const Bound& operation : bound) {
    if (operation.mine) found->second.in_flight.erase(operation.signature->name);
  }
  // Rank 0 tells the Root itself (Hub::root_rank_done).
  if (found->second.pacer != rank_ || rank_ == 0) return;
  const auto same = [&](const auto& done) { return done.first == number; };
  const auto done = std::find_if(up_.done.begin(), up_.done.end(), same);
  if (done == up_.done.end()) {
    up_.done.emplace_back(number, 1);
  } else {
    ++done->second;
  }
}

void Client::parent_lost(int rank, const std::string& why) { end(rank, true, why); }

void Client::tick() {
  if (ended_) return;
  for (auto& [number, group] : groups_) {
    for (auto& [name, request] : group.in_flight) {
      if (!request.runs && ++request.age_ticks >= kStalledTicks) up_.stalled = true;
    }
  }
}

void Client::from_parent(const Verdict& verdict) {
  if (ended_) return;
  switch (verdict.type) {
    case Verdict::Type::batch:
      return run_batch(verdict);
    case Verdict::Type::fault:
      return fail_request(verdict);
    case Verdict::Type::join_done:
      HVD_ASSERT(joined_);
      joined_ = false;
      actions_.push_back({.type = Action::Type::joined, .rank = verdict.rank});
      return;
    case Verdict::Type::shut_down:
      return end(verdict.rank, false, verdict.text);
    case Verdict::Type::abort:
      return end(verdict.rank, true, verdict.text);
    case Verdict::Type::query:
      return answer(static_cast<uint32_t>(verdict.value));
    case Verdict::Type::knobs:
      return;  // the Root's alone, so far
  }
}

bool Client::has_up() const { return !up_.empty(); }

Up Client::take_up() {
  stamp(up_, [this](GroupNumber number) {
    const SlotTable* table = slots(number);
    return table == nullptr ? 0 : table->retirements();
  });
  return std::exchange(up_, {});
}

std::vector<Action> Client::take_actions() { return std::exchange(actions_, {}); }

bool Client::ended() const { return ended_; }

bool Client::is_member(GroupNumber group) const { return groups_.contains(group); }

size_t Client::waiting() const {
  size_t count = 0;
  for (const auto& [number, group] : groups_) count += group.waiting;
  return count;
}

const SlotTable* Client::slots(GroupNumber group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second.slots;
}

void Client::add_group(GroupNumber number, const std::vector<int32_t>& members) {
  groups_[number].pacer = members.front();
}

/// What was agreed under the name is referred to, if it is the same; anything else is copied.
SharedSignature Client::known(const Group& group, const Signature& signature) {
  const SlotNumber slot = group.slots.slot_of(signature.name);
  if (slot != kNoSlot && *group.slots.find_live(slot) == signature)
    return *group.slots.find_live(slot);
  return signature;
}

void Client::announce(GroupNumber number, const Group& group, const SharedSignature& signature) {
  Entry entry{.group = number, .lowest = rank_, .count = 1};
  const SlotNumber slot = group.slots.slot_of(signature->name);
  if (slot != kNoSlot &&
      (*group.slots.find_live(slot) == signature || !rules_.changes_are_sent_in_full)) {
    entry.slot = slot;
  } else {
    entry.opinions.push_back({.signature = signature, .rank = rank_, .count = 1});
  }
  up_.entries.push_back(std::move(entry));
}

void Client::run_batch(const Verdict& verdict) {
  const auto found = groups_.find(verdict.group);
  HVD_ASSERT(found != groups_.end());  // a Hub sends this only to members
  Action run{.group = verdict.group, .sequence = verdict.sequence};
  run.bound.reserve(verdict.items.size());
  for (const Item& item : verdict.items)
    run.bound.push_back(bind(verdict.group, found->second, item));
  if (is_control(run.bound.front().signature->kind)) {
    change_groups(run.bound.front(), verdict.items.front().new_group);
  } else {
    actions_.push_back(std::move(run));
  }
}

/// Finds this rank's request for an agreed operation; a joined rank has none and stands in.
Bound Client::bind(GroupNumber number, Group& group, const Item& item) {
  std::vector<NameHash> lost;  // names whose slot goes, for the rule that nobody announces again
  if (!rules_.counts_outlive_retirement) {
    for (const SlotNumber slot : item.retire) lost.push_back((*group.slots.find_live(slot))->name);
  }
  group.slots.apply(item, SlotTable::Retired::forget);
  const SharedSignature* agreed = item.define ? &item.signature : group.slots.find_live(item.slot);
  HVD_ASSERT(agreed != nullptr);
  Bound bound{.signature = *agreed};
  if (Request* request = group.find_waiting(bound.signature->name)) {
    HVD_ASSERT(request->signature == *agreed);  // nothing runs by an old agreement
    bound.mine = true;
    bound.tag = request->tag;
    request->runs = true;
    --group.waiting;
  } else {
    HVD_ASSERT(joined_);
  }
  for (const NameHash& name : lost) {
    if (const Request* again = group.find_waiting(name)) announce(number, group, again->signature);
  }
  return bound;
}

/// Adding and removing a process set takes effect at its place in the stream and runs nothing.
void Client::change_groups(const Bound& bound, GroupNumber new_group) {
  const Signature& signature = bound.signature;
  groups_.at(kWorldGroup).in_flight.erase(signature.name);
  if (signature.kind == OperationKind::add_process_set) {
    const auto& members = signature.members;
    if (std::binary_search(members.begin(), members.end(), rank_)) add_group(new_group, members);
    actions_.push_back({.type = Action::Type::set_added,
                        .group = new_group,
                        .tag = bound.tag,
                        .members = members});
  } else {
    remove_group(signature.target);
    actions_.push_back(
        {.type = Action::Type::set_removed, .group = signature.target, .tag = bound.tag});
  }
}

void Client::remove_group(GroupNumber number) {
  const auto removed = groups_.extract(number);
  if (removed.empty()) return;
  std::vector<const Request*> waiting;
  for (const auto& [name, request] : removed.mapped().in_flight) {
    if (!request.runs) waiting.push_back(&request);
  }
  std::ranges::sort(waiting, {}, &Request::tag);  // one order in every build
  for (const Request* request : waiting) {
    actions_.push_back(
        {.type = Action::Type::fail,
         .group = number,
         .tag = request->tag,
         .text = "\"" + request->name +
                 "\": the process set was removed before all of its ranks had submitted this"});
  }
}

void Client::fail_request(const Verdict& verdict) {
  const auto found = groups_.find(verdict.group);
  HVD_ASSERT(found != groups_.end());
  const NameHash& name = verdict.items.front().signature->name;
  const Request* request = found->second.find_waiting(name);
  if (request == nullptr) {
    HVD_ASSERT(joined_);
    return;
  }
  actions_.push_back({.type = Action::Type::fail,
                      .group = verdict.group,
                      .tag = request->tag,
                      .text = describe_fault(verdict, request->name)});
  found->second.erase_waiting(name);
}

/// What this rank waits for. Ranks that wait for the same answer alike, whatever order they
/// submitted it in.
void Client::answer(uint32_t query) {
  Waiting waiting{.last = last_submitted_, .joined = joined_};
  for (const auto& [number, group] : groups_) {
    for (const auto& [name, request] : group.in_flight) {
      if (!request.runs) waiting.names.push_back({number, request.name, request.age_ticks});
    }
  }
  std::sort(waiting.names.begin(), waiting.names.end(), [](const auto& a, const auto& b) {
    return std::tie(b.age_ticks, a.group, a.name) < std::tie(a.age_ticks, b.group, b.name);
  });
  if (waiting.names.size() > kMaxNamesInReport) {
    waiting.more = static_cast<uint32_t>(waiting.names.size() - kMaxNamesInReport);
    waiting.names.resize(kMaxNamesInReport);
  }
  up_.has_report = true;
  up_.query = query;
  up_.report.clear();
  up_.report[std::move(waiting)].push_back(rank_);
}

void Client::end(int rank, bool lost, std::string text) {
  if (ended_) return;
  ended_ = true;
  actions_.push_back(
      {.type = Action::Type::ended, .text = std::move(text), .rank = rank, .lost = lost});
}

}  // namespace hvd
