#include "core/negotiate/root.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

// Of one query. A silent rank delays its end by minutes, in which others may go on.
constexpr size_t kMostNoted = 1 << 16;

}  // namespace

Root::Root(const NegotiateOptions& options) : options_(options) { add_group(kWorldGroup, {}); }

void Root::complete(Entry entry) {
  const auto found = groups_.find(entry.group);
  if (found == groups_.end()) return;  // removed; its ranks will receive that verdict
  if (asking_) note_complete(entry);
  SharedSignature& signature = entry.opinions.front().signature;
  const bool joined_fault =
      entry.substituted && signature->operation.kind != OperationKind::allreduce;
  if (entry.opinions.size() == 1 && !joined_fault) {
    if (signature->operation.kind == OperationKind::message)
      return order_message(std::move(signature));
    found->second.ready.push_back({.signature = std::move(signature)});
    return;
  }
  // A fault is a verdict without data to move, so it is not paced.
  Verdict fault{.type = Verdict::Type::fault, .group = entry.group, .joined_fault = joined_fault};
  fault.items.push_back({.define = true, .signature = signature});
  fault.opinions = std::move(entry.opinions);
  emit(std::move(fault));
}

void Root::all_joined(int last) {
  groups_.at(kWorldGroup).ready.push_back({.join_done = true, .last_joined = last});
  if (options_.rules.join_done_queues) return;
  ReadyQueue& ready = groups_.at(kWorldGroup).ready;
  ready.push_front(std::move(ready.back()));
  ready.pop_back();
}

void Root::done(GroupNumber group, uint32_t batches) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  found->second.outstanding -= static_cast<int>(batches);
  HVD_ASSERT(found->second.outstanding >= 0);
}

void Root::shutdown(int by, const std::string& text) {
  emit({.type = Verdict::Type::shut_down, .rank = by, .text = text.substr(0, kMaxTextBytes)});
  ended_ = true;
}

void Root::abort(int rank, const std::string& why) {
  emit({.type = Verdict::Type::abort, .rank = rank, .text = why.substr(0, kMaxTextBytes)});
  ended_ = true;
}

void Root::stalled() {
  wants_query_ = true;
  ask();
}

void Root::expired() {
  wants_query_ = is_urgent_ = true;
  ask();
}

void Root::tick() {
  asked_this_period_ = false;
  ask();
}

void Root::reported(StallReport report) {
  asking_ = false;
  if (complete_.size() < kMostNoted)
    report_ = without_complete(report);
  else
    wants_query_ = is_urgent_ = true;  // unknown what of the report still holds
  if (is_urgent_) ask();
}

void Root::note_complete(const Entry& entry) {
  if (complete_.size() == kMostNoted) return;
  const Signature& signature = entry.opinions.front().signature;
  const bool is_message = signature.operation.kind == OperationKind::message;
  complete_.emplace(entry.group, signature.name,
                    is_message ? signature.members : std::vector<int32_t>());
}

/// Ranks answer at different times: what one of them had not submitted when it answered may be
/// complete when the last answer arrives.
StallReport Root::without_complete(const StallReport& report) const {
  StallReport rest;
  for (const auto& [waiting, ranks] : report) {
    Waiting still = waiting;
    std::erase_if(still.names, [&](const WaitingName& name) {
      return complete_.contains({name.group, hash_name(name.name), name.between});
    });
    std::vector<int32_t>& all = rest[std::move(still)];
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  return rest;
}

std::optional<StallReport> Root::take_report() { return std::exchange(report_, std::nullopt); }

void Root::set_fusion_bytes(uint64_t bytes) {
  options_.fusion_bytes = bytes;
  emit({.type = Verdict::Type::knobs, .value = bytes});
}

Down Root::turn() {
  // Groups may be added and removed after the current one: only the world, which is first, adds and
  // removes them, and new groups get the highest number.
  for (auto& [number, group] : groups_) {
    if (!ended_) issue(number, group);
  }
  if (!ended_)
    issue(kWorldGroup, groups_.at(kWorldGroup));  // a join that waited for the process sets
  return std::exchange(out_, {});
}

std::map<GroupNumber, std::vector<int32_t>> Root::process_sets() const {
  std::map<GroupNumber, std::vector<int32_t>> sets;
  for (const auto& [number, group] : groups_) {
    if (number != kWorldGroup) sets[number] = group.members;
  }
  return sets;
}

size_t Root::remembered() const {
  size_t count = 0;
  for (const auto& [number, group] : groups_) count += group.slots.remembered();
  return count;
}

void Root::add_group(GroupNumber number, std::vector<int32_t> members) {
  groups_.emplace(number, Group{.slots = {options_.slot_capacity, options_.rules},
                                .members = std::move(members)});
}

void Root::issue(GroupNumber number, Group& group) {
  while (!group.ready.empty()) {
    if (group.ready.front().join_done) {
      if (options_.rules.join_done_queues && !sets_are_idle()) return;
      emit({.type = Verdict::Type::join_done, .rank = group.ready.front().last_joined});
      group.ready.pop_front();
      continue;
    }
    if (is_control(group.ready.front().signature->operation.kind)) {
      order_control(group);
      continue;
    }
    if (group.outstanding >= options_.window && group.outstanding > 0) return;
    const Cut cut = cut_batch(group.ready, options_.fusion_bytes);
    if (must_wait(group, cut)) return;
    order_batch(number, group, cut);
  }
}

/// Returns whether no process set has ready operations: all operations with substituted joined
/// ranks have been ordered.
bool Root::sets_are_idle() const {
  return std::ranges::all_of(groups_, [](const auto& entry) {
    return entry.first == kWorldGroup || entry.second.ready.empty();
  });
}

/// Nagle's rule: if no batch is outstanding, the oldest operation is sent at once, however small
/// its batch; otherwise only full batches are sent, up to the window.
bool Root::must_wait(const Group& group, const Cut& cut) const {
  if (!options_.rules.threshold_never_refuses && cut.bytes > options_.fusion_bytes) return true;
  return group.outstanding > 0 && !cut.full;
}

void Root::order_batch(GroupNumber number, Group& group, const Cut& cut) {
  Verdict batch{.group = number, .sequence = ++sequence_};
  batch.items.reserve(cut.taken.size());
  for (SharedSignature& signature : take(group.ready, cut)) {
    batch.items.push_back(group.slots.spell(std::move(signature)));
  }
  ++group.outstanding;
  emit(std::move(batch));
}

/// Messages are not fused, so there is nothing to wait for. They use no slot: only their two ranks
/// receive the verdict.
void Root::order_message(SharedSignature signature) {
  Verdict batch{.group = kWorldGroup, .sequence = ++sequence_};
  batch.items.push_back({.define = true, .signature = std::move(signature)});
  emit(std::move(batch));
}

/// Adds or removes process sets at their position in the order of batches. No data is moved and no
/// slot is used.
void Root::order_control(Group& world) {
  Item item{.define = true, .signature = std::move(world.ready.front().signature)};
  world.ready.pop_front();
  if (item.signature->operation.kind == OperationKind::add_process_set) {
    item.new_group = new_group_number();
    add_group(item.new_group, item.signature->members);
  } else {
    HVD_ASSERT(item.signature->target != kWorldGroup);
    remove_group(item.signature->target);
  }
  Verdict change{.group = kWorldGroup};
  change.items.push_back(std::move(item));
  emit(std::move(change));
}

/// Operations that all members have submitted before they removed the set still run, regardless of
/// pacing.
void Root::remove_group(GroupNumber number) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  Group& group = found->second;
  while (!group.ready.empty()) {
    order_batch(number, group, cut_batch(group.ready, options_.fusion_bytes));
  }
  groups_.erase(found);
}

GroupNumber Root::new_group_number() {
  if (options_.rules.group_numbers_are_fresh) return next_group_++;
  GroupNumber number = kWorldGroup + 1;
  while (groups_.contains(number)) ++number;
  return number;
}

void Root::ask() {
  if (!wants_query_ || asking_ || (asked_this_period_ && !is_urgent_) || ended_) return;
  wants_query_ = is_urgent_ = false;
  asking_ = true;
  asked_this_period_ = true;
  complete_.clear();
  emit({.type = Verdict::Type::query, .value = ++query_});
}

void Root::emit(Verdict verdict) {
  if (!ended_) out_.push_back(std::move(verdict));
}

}  // namespace hvd
