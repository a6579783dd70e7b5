#include "core/negotiate/client.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/base/assert.h"
#include "core/negotiate/mismatch.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;

/// A request that was waiting at two ticks has waited for at least one period.
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

/// Returns nullptr if the name is in flight.
Client::Request* Client::add_request(Group& group, const Signature& signature) {
  if (is_message(signature)) return &messages_[message_key(signature)].emplace_back();
  const auto [place, is_new] = group.in_flight.try_emplace(signature.name);
  return is_new ? &place->second : nullptr;
}

/// Returns the waiting request for this operation, of messages the oldest one; or nullptr.
Client::Request* Client::find_waiting(Group& group, const Signature& signature) {
  if (!is_message(signature)) return group.find_waiting(signature.name);
  const auto found = messages_.find(message_key(signature));
  return found == messages_.end() ? nullptr : &found->second.front();
}

/// Nothing is kept of a message: the next one of its name may wait already.
void Client::pop_message(const Signature& signature) {
  const auto found = messages_.find(message_key(signature));
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
}

Submitted Client::submit(GroupNumber number, const std::string& name, const Signature& signature,
                         uint64_t tag) {
  HVD_ASSERT(!concerns_world(signature.operation.kind) || number == kWorldGroup);
  HVD_ASSERT(signature.operation.kind != OperationKind::remove_process_set ||
             signature.target != kWorldGroup);
  if (ended_) return Submitted::ended;
  if (joined_) return Submitted::joined;
  const auto found = groups_.find(number);
  if (found == groups_.end()) return Submitted::not_a_member;
  Group& group = found->second;
  Request* const request = add_request(group, signature);
  if (request == nullptr) return Submitted::duplicate_name;
  request->name = name;
  request->signature = known(group, signature);
  request->tag = tag;
  ++group.waiting;
  announce(number, group, request->signature);
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

void Client::free_names(GroupNumber number, const std::vector<Bound>& bound) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;  // the group was removed while the batch ran
  for (const Bound& operation : bound) {
    const bool has_name = operation.mine && !is_message(operation.signature);
    if (has_name) found->second.in_flight.erase(operation.signature->name);
  }
}

void Client::batch_ended(GroupNumber number) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  // Rank 0 reports to the Root directly (Hub::root_rank_done).
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
  const auto grow_older = [this](Request& request) {
    if (!request.runs && ++request.age_ticks >= kStalledTicks) up_.stalled = true;
  };
  for (auto& [number, group] : groups_) {
    for (auto& [name, request] : group.in_flight) grow_older(request);
  }
  for (auto& [key, queue] : messages_) std::ranges::for_each(queue, grow_older);
}

void Client::expire(GroupNumber number, const Signature& signature,
                    std::chrono::milliseconds timeout) {
  const auto found = groups_.find(number);
  if (ended_ || found == groups_.end()) return;
  Request* const request = find_waiting(found->second, signature);
  if (request == nullptr) return;
  constexpr auto kMost = std::chrono::milliseconds(std::numeric_limits<uint32_t>::max());
  request->expired_ms = static_cast<uint32_t>(std::clamp(timeout, 1ms, kMost).count());
  up_.expired = true;
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
      return;  // only the Root uses it at present
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

/// Returns the signature agreed under this name if it is equal; otherwise a copy.
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
    ++announced_.by_slot;
  } else {
    entry.opinions.push_back({.signature = signature, .rank = rank_, .count = 1});
    ++announced_.in_full;
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
  if (is_control(run.bound.front().signature->operation.kind)) {
    change_groups(run.bound.front(), verdict.items.front().new_group);
  } else {
    actions_.push_back(std::move(run));
  }
}

/// Finds this rank's request for an agreed operation; a joined rank has none and is substituted.
Bound Client::bind(GroupNumber number, Group& group, const Item& item) {
  std::vector<NameHash> lost;  // names whose slot is retired; used only with a rule disabled
  if (!rules_.counts_outlive_retirement) {
    for (const SlotNumber slot : item.retire) lost.push_back((*group.slots.find_live(slot))->name);
  }
  group.slots.apply(item, SlotTable::Retired::forget);
  const SharedSignature* agreed = item.define ? &item.signature : group.slots.find_live(item.slot);
  HVD_ASSERT(agreed != nullptr);
  Bound bound{.signature = *agreed};
  if (Request* const request = find_waiting(group, bound.signature)) {
    HVD_ASSERT(request->signature == *agreed);  // no operation runs with an outdated signature
    bound.mine = true;
    bound.tag = request->tag;
    request->runs = true;
    --group.waiting;
    if (is_message(bound.signature)) pop_message(bound.signature);
  } else {
    HVD_ASSERT(joined_);
  }
  for (const NameHash& name : lost) {
    if (const Request* again = group.find_waiting(name)) announce(number, group, again->signature);
  }
  return bound;
}

/// Adds or removes a process set at its position in the order of batches; no data is moved.
void Client::change_groups(const Bound& bound, GroupNumber new_group) {
  const Signature& signature = bound.signature;
  groups_.at(kWorldGroup).in_flight.erase(signature.name);
  if (signature.operation.kind == OperationKind::add_process_set) {
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
    actions_.push_back({.type = Action::Type::fail,
                        .group = number,
                        .tag = request->tag,
                        .text = "\"" + request->name +
                                "\": the process set was removed before all of its ranks had "
                                "submitted this operation"});
  }
}

void Client::fail_request(const Verdict& verdict) {
  const auto found = groups_.find(verdict.group);
  HVD_ASSERT(found != groups_.end());
  Group& group = found->second;
  const Signature& failed = verdict.items.front().signature;
  const Request* request = find_waiting(group, failed);
  if (request == nullptr) {
    HVD_ASSERT(joined_);
    return;
  }
  actions_.push_back({.type = Action::Type::fail,
                      .group = verdict.group,
                      .tag = request->tag,
                      .text = describe_fault(verdict, request->name)});
  --group.waiting;
  if (is_message(failed)) return pop_message(failed);
  group.in_flight.erase(failed.name);
}

WaitingName Client::as_waiting(GroupNumber number, const Request& request) {
  const Signature& signature = request.signature;
  return {.group = number,
          .name = request.name,
          .age_ticks = request.age_ticks,
          .between = is_message(signature) ? signature.members : std::vector<int32_t>{},
          .expired_ms = request.expired_ms};
}

/// Lists messages of one name once, with the age of the oldest: only the first one can be matched.
std::vector<WaitingName> Client::all_waiting() const {
  std::vector<WaitingName> names;
  for (const auto& [number, group] : groups_) {
    for (const auto& [name, request] : group.in_flight) {
      if (!request.runs) names.push_back(as_waiting(number, request));
    }
  }
  for (const auto& [key, queue] : messages_)
    names.push_back(as_waiting(kWorldGroup, queue.front()));
  return names;
}

/// Answers a query with the requests that this rank waits for: those whose time is over first, and
/// the oldest. Ranks that wait for the same operations give equal answers, whatever the order of
/// submission.
void Client::answer(uint32_t query) {
  Waiting waiting{.names = all_waiting(), .last = last_submitted_, .joined = joined_};
  std::sort(waiting.names.begin(), waiting.names.end(), [](const auto& a, const auto& b) {
    const bool a_is_over = a.expired_ms > 0, b_is_over = b.expired_ms > 0;
    return std::tie(b_is_over, b.age_ticks, a.group, a.name) <
           std::tie(a_is_over, a.age_ticks, b.group, b.name);
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
