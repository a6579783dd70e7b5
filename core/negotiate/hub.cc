#include "core/negotiate/hub.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

OperationKind kind_of(const SharedSignature& signature) { return signature->operation.kind; }

}  // namespace

Hub::Hub(int host, const Topology& topology, NegotiateOptions options)
    : host_(host), topology_(topology), rules_(options.rules), children_(topology.children(host)) {
  HVD_ASSERT(children_ <= kMaxChildren);
  for (int child = 0; child < children_; ++child) all_children_.set(child);
  std::vector<int32_t> everyone(static_cast<size_t>(topology_.ranks()));
  std::iota(everyone.begin(), everyone.end(), 0);
  add_group(kWorldGroup, everyone);
  if (host == 0) root_.emplace(options);
}

void Hub::from_child(int child, const Up& up) {
  for (const Entry& entry : up.entries) arrive(child, entry);
  // After the entries, which may still refer to slots acknowledged here.
  for (const auto& [group, retirements] : up.seen) acknowledge(child, group, retirements);
  // After the entries: a submitted operation needs no substitution.
  if (!up.joined.empty()) ranks_joined(up.joined);
  for (const auto& [group, batches] : up.done) add_done(group, batches);
  if (up.shutdown) shutdown(up.shutdown_by);
  if (up.lost != kNoRank) report_lost(up.lost, up.lost_why);
  if (up.stalled) stalled();
  if (up.expired) expired();
  if (up.has_report) collect(child, up);
}

void Hub::from_parent(const Verdict& verdict) {
  const auto found = groups_.find(verdict.group);
  if (found == groups_.end()) return;  // no member in this subtree, or the set was removed
  const ChildSet to = recipients(found->second, verdict);
  switch (verdict.type) {
    case Verdict::Type::batch:
      apply_batch(found->second, verdict);
      break;
    case Verdict::Type::join_done:
      finish_join();
      break;
    case Verdict::Type::query:
      begin_query(static_cast<uint32_t>(verdict.value));
      break;
    case Verdict::Type::fault:
    case Verdict::Type::shut_down:
    case Verdict::Type::abort:
    case Verdict::Type::knobs:
      break;
  }
  for (int child = 0; child < children_; ++child) {
    if (to[child]) down_[child].push_back(verdict);
  }
}

/// A message concerns its two ranks only.
ChildSet Hub::recipients(const Group& group, const Verdict& verdict) const {
  const bool is_message = !verdict.items.empty() && verdict.items.front().define &&
                          kind_of(verdict.items.front().signature) == OperationKind::message;
  return is_message ? children_towards(verdict.items.front().signature->members) : group.expected;
}

void Hub::lost_child(int rank, const std::string& why) { report_lost(rank, why); }

/// Informs the children at once, since the Root cannot reach them any more.
void Hub::lost_parent(int rank, const std::string& why) {
  from_parent({.type = Verdict::Type::abort, .rank = rank, .text = why});
}

void Hub::root_rank_done(GroupNumber group) {
  HVD_ASSERT(root_);
  root_->done(group, 1);
}

void Hub::tick() {
  if (root_) root_->tick();
  if (awaited_.none()) return;
  // Hubs further down time out first, so that the answers they have received are not lost.
  constexpr int kAtLeastOnePeriod = 2;
  if (++ticks_awaited_ < kAtLeastOnePeriod + topology_.levels_below(host_)) return;
  std::vector<int32_t>& silent = report_[{.silent = true}];
  for (int child = 0; child < children_; ++child) {
    if (!awaited_[child]) continue;
    const std::vector<int32_t> ranks = ranks_through(child);
    silent.insert(silent.end(), ranks.begin(), ranks.end());
  }
  awaited_.reset();
  send_report();
}

void Hub::turn() {
  if (!root_) return;
  for (const Verdict& verdict : root_->turn()) from_parent(verdict);
}

bool Hub::has_up() const { return !up_.empty(); }

Up Hub::take_up() {
  stamp(up_, [this](GroupNumber number) {
    const auto found = groups_.find(number);
    return found == groups_.end() ? 0 : found->second.slots.retirements();
  });
  return std::exchange(up_, {});
}

bool Hub::has_down() const { return !down_.empty(); }

std::map<int, Down> Hub::take_down() { return std::exchange(down_, {}); }

size_t Hub::counting() const {
  size_t count = 0;
  for (const auto& [key, queue] : messages_) count += queue.size();
  for (const auto& [number, group] : groups_) count += group.counts.size();
  return count;
}

size_t Hub::live_slots() const {
  size_t count = 0;
  for (const auto& [number, group] : groups_) count += group.slots.live_count();
  return count;
}

size_t Hub::kept_slots() const {
  size_t count = 0;
  for (const auto& [number, group] : groups_) count += group.slots.kept_count();
  return count;
}

/// Counts by name, because a slot is only an abbreviation, and some ranks may send the name and
/// others the slot.
void Hub::arrive(int child, const Entry& entry) {
  if (entry.slot == kNoSlot && kind_of(entry.opinions.front().signature) == OperationKind::message)
    return arrive_message(child, entry);
  const auto found = groups_.find(entry.group);
  if (found == groups_.end()) return;  // the set was removed; its ranks will receive that verdict
  Group& group = found->second;
  const SharedSignature* by_slot = nullptr;
  if (entry.slot != kNoSlot) {
    by_slot =
        group.slots.find(entry.slot);  // live, or retired and not yet acknowledged by the child
    HVD_ASSERT(by_slot != nullptr);
    if (!rules_.counts_outlive_retirement && group.slots.find_live(entry.slot) == nullptr) return;
  }
  const NameHash name =
      by_slot != nullptr ? (*by_slot)->name : entry.opinions.front().signature->name;
  Count& count = group.counts[name];
  HVD_ASSERT(
      !count.arrived[child]);  // no child can be ahead of a Verdict that has not passed this hub
  count.arrived.set(child);
  count_in(count, entry, by_slot);
  const bool told_early = root_ && count.opinions.size() > 1 && !rules_.fault_waits_for_all;
  if (told_early || is_complete(entry.group, group, count)) forward(entry.group, group, name);
}

void Hub::count_in(Count& count, const Entry& entry, const SharedSignature* by_slot) {
  count.substituted |= entry.substituted;
  count.lowest = count.lowest == kNoRank ? entry.lowest : std::min(count.lowest, entry.lowest);
  count.count += entry.count;
  if (by_slot != nullptr && entry.slot == count.slot) {  // the common case: no comparison needed
    count.opinions.front().rank = std::min(count.opinions.front().rank, entry.lowest);
    count.opinions.front().count += entry.count;
  } else if (by_slot != nullptr) {
    if (count.opinions.empty()) count.slot = entry.slot;
    add_opinion(count.opinions,
                {.signature = *by_slot, .rank = entry.lowest, .count = entry.count});
  } else {
    for (const Opinion& opinion : entry.opinions) add_opinion(count.opinions, opinion);
  }
}

/// Returns whether every child with members has submitted, or all of its members have joined. A
/// count exists only once a rank has submitted, so the last join does not complete operations that
/// no rank has submitted.
bool Hub::is_complete(GroupNumber number, const Group& group, const Count& count) const {
  const bool may_join = number == kWorldGroup || rules_.joins_count_in_sets;
  return (may_join ? count.arrived | group.joined : count.arrived) == group.expected;
}

void Hub::forward_complete(GroupNumber number, Group& group) {
  std::vector<NameHash> complete;
  for (const auto& [name, count] : group.counts) {
    if (is_complete(number, group, count)) complete.push_back(name);
  }
  std::sort(complete.begin(), complete.end());  // one order in every build
  for (const NameHash& name : complete) forward(number, group, name);
}

/// Forwards a count and removes it: a child can submit the next operation only after the Verdict,
/// which passes this hub.
void Hub::forward(GroupNumber number, Group& group, const NameHash& name) {
  Entry entry = total_of(number, std::move(group.counts.extract(name).mapped()), group.expected);
  if (!rules_.substitution_is_counted) entry.substituted = group.joined.any();
  if (root_) {
    root_->complete(std::move(entry));
    return;
  }
  const SlotNumber slot = group.slots.slot_of(name);
  if (entry.opinions.size() == 1 && slot != kNoSlot &&
      *group.slots.find_live(slot) == entry.opinions.front().signature) {
    entry.slot = slot;
    entry.opinions.clear();
  }
  up_.entries.push_back(std::move(entry));
}

Entry Hub::total_of(GroupNumber number, Count count, const ChildSet& expected) {
  const bool stood_in = count.arrived != expected;
  return {.group = number,
          .opinions = std::move(count.opinions),
          .substituted = count.substituted || stood_in,
          .lowest = count.lowest,
          .count = count.count};
}

/// Counts by name and ranks: messages of the same name between other ranks are other messages. Each
/// child submits them in order, so the n-th of one child is the n-th of the other one.
void Hub::arrive_message(int child, const Entry& entry) {
  const auto place = messages_.try_emplace(message_key(entry.opinions.front().signature)).first;
  std::deque<Count>& queue = place->second;
  const bool is_ahead = queue.empty() || queue.front().arrived[child];
  Count& count = is_ahead ? queue.emplace_back() : queue.front();
  count.arrived.set(child);
  count_in(count, entry, nullptr);
  forward_complete(place);
}

/// A rank that has joined will not submit its end of the message.
bool Hub::is_complete(const std::vector<int32_t>& ends, const Count& count) const {
  return std::ranges::all_of(ends, [&](int32_t rank) {
    const int child = topology_.child_towards(host_, rank);
    return child < 0 || count.arrived[child] || joined_.contains(rank);
  });
}

void Hub::forward_complete(Messages::iterator place) {
  const auto& ends = place->first.second;
  std::deque<Count>& queue = place->second;
  for (; !queue.empty() && is_complete(ends, queue.front()); queue.pop_front())
    forward(ends, std::move(queue.front()));
  if (queue.empty()) messages_.erase(place);
}

void Hub::forward(const std::vector<int32_t>& ends, Count message) {
  Entry entry = total_of(kWorldGroup, std::move(message), children_towards(ends));
  if (root_) {
    root_->complete(std::move(entry));
  } else {
    up_.entries.push_back(std::move(entry));
  }
}

void Hub::forward_complete_messages() {
  for (auto next = messages_.begin(); next != messages_.end();) forward_complete(next++);
}

ChildSet Hub::children_towards(const std::vector<int32_t>& ranks) const {
  ChildSet children;
  for (const int32_t rank : ranks) {
    if (const int child = topology_.child_towards(host_, rank); child >= 0) children.set(child);
  }
  return children;
}

/// Drops retirements that every child has acknowledged. Children whose members have all joined send
/// no slots.
void Hub::acknowledge(int child, GroupNumber number, uint32_t retirements) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  Group& group = found->second;
  group.seen[child] = std::max(group.seen[child], retirements);
  if (group.slots.kept_count() == 0) return;
  uint32_t least = group.slots.retirements();
  for (int other = 0; other < children_; ++other) {
    if (group.expected[other] && !group.joined[other]) least = std::min(least, group.seen[other]);
  }
  group.slots.forget_retired(least);
}

/// Counts these ranks as present in every group that they are members of.
void Hub::ranks_joined(const std::vector<int32_t>& ranks) {
  std::set<GroupNumber> changed;  // one order in every build
  for (const int32_t rank : ranks) {
    const bool is_new = joined_.insert(rank).second;
    HVD_ASSERT(is_new);
    for (auto& [number, group] : groups_) {
      if (note_joined(group, rank)) changed.insert(number);
    }
  }
  for (const GroupNumber number : changed) forward_complete(number, groups_.at(number));
  forward_complete_messages();
  if (!root_) {
    up_.joined.insert(up_.joined.end(), ranks.begin(), ranks.end());
  } else if (groups_.at(kWorldGroup).joined == all_children_) {
    root_->all_joined(ranks.back());
  }
}

void Hub::add_done(GroupNumber group, uint32_t batches) {
  if (root_) {
    root_->done(group, batches);
    return;
  }
  const auto same = [&](const auto& done) { return done.first == group; };
  const auto done = std::find_if(up_.done.begin(), up_.done.end(), same);
  if (done == up_.done.end()) {
    up_.done.emplace_back(group, batches);
  } else {
    done->second += batches;
  }
}

void Hub::shutdown(int by) {
  if (root_) {
    root_->shutdown(by, "");
  } else {
    up_.shutdown = true;
    up_.shutdown_by = by;
  }
}

void Hub::stalled() {
  if (root_) {
    root_->stalled();
  } else if (!stalled_) {
    stalled_ = true;
    up_.stalled = true;
  }
}

void Hub::expired() {
  if (root_) {
    root_->expired();
  } else {
    up_.expired = true;
  }
}

void Hub::report_lost(int rank, const std::string& why) {
  if (root_) {
    root_->abort(rank, why);
  } else if (up_.lost == kNoRank) {
    up_.lost = rank;
    up_.lost_why = why.substr(0, kMaxTextBytes);
  }
}

void Hub::collect(int child, const Up& up) {
  if (up.query != query_ || !awaited_[child]) return;  // answers an earlier query
  awaited_.reset(child);
  for (const auto& [waiting, ranks] : up.report) {
    std::vector<int32_t>& all = report_[waiting];
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  if (awaited_.none()) send_report();
}

void Hub::send_report() {
  for (auto& [waiting, ranks] : report_) std::sort(ranks.begin(), ranks.end());
  if (root_) {
    root_->reported(std::exchange(report_, {}));
  } else {
    up_.has_report = true;
    up_.query = query_;
    up_.report = std::exchange(report_, {});
  }
}

void Hub::apply_batch(Group& group, const Verdict& verdict) {
  const auto retired =
      rules_.retired_slots_are_kept ? SlotTable::Retired::keep : SlotTable::Retired::forget;
  for (const Item& item : verdict.items) {
    if (!rules_.counts_outlive_retirement) {
      for (const SlotNumber slot : item.retire) {
        group.counts.erase((*group.slots.find_live(slot))->name);
      }
    }
    group.slots.apply(item, retired);
  }
  const Item& first = verdict.items.front();
  if (!first.define) return;
  if (first.signature->operation.kind == OperationKind::add_process_set) {
    add_group(first.new_group, first.signature->members);
  } else if (first.signature->operation.kind == OperationKind::remove_process_set) {
    groups_.erase(first.signature->target);
  }
}

/// A hub whose own host has no members, but whose subtree does, keeps the set's slots; a hub
/// without any members in its subtree does not store the set.
void Hub::add_group(GroupNumber number, const std::vector<int32_t>& members) {
  Group group{.seen = std::vector<uint32_t>(children_)};
  for (const int32_t rank : members) {
    const int child = topology_.child_towards(host_, rank);
    if (child < 0) continue;
    group.expected.set(child);
    group.members.push_back({rank, child});
  }
  count_present(group);
  if (group.expected.any()) groups_[number] = std::move(group);
}

void Hub::count_present(Group& group) const {
  group.present.assign(static_cast<size_t>(children_), 0);
  group.joined = group.expected;
  for (const Member& member : group.members) {
    if (joined_.contains(member.rank)) continue;
    ++group.present[static_cast<size_t>(member.child)];
    group.joined.reset(static_cast<size_t>(member.child));
  }
}

/// Returns whether `rank` was the last member reached through its child that had not joined.
bool Hub::note_joined(Group& group, int32_t rank) {
  const auto member = std::ranges::lower_bound(group.members, rank, {}, &Member::rank);
  if (member == group.members.end() || member->rank != rank) return false;
  const auto child = static_cast<size_t>(member->child);
  if (--group.present[child] > 0) return false;
  group.joined.set(child);
  return true;
}

/// Joined children send later messages only after they have received this Verdict.
void Hub::finish_join() {
  joined_.clear();
  for (auto& [number, group] : groups_) {
    for (int child = 0; child < children_; ++child) {
      if (group.joined[child]) group.seen[child] = group.slots.retirements();
    }
    count_present(group);
  }
}

void Hub::begin_query(uint32_t query) {
  query_ = query;
  awaited_ = all_children_;
  ticks_awaited_ = 0;
  report_.clear();
  stalled_ = false;
}

std::vector<int32_t> Hub::ranks_through(int child) const {
  std::vector<int32_t> ranks;
  for (int rank = 0; rank < topology_.ranks(); ++rank) {
    if (topology_.child_towards(host_, rank) == child) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace hvd
