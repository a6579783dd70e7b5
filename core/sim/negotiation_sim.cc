#include "core/sim/negotiation_sim.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/negotiate/wire.h"

namespace hvd::sim {
namespace {

constexpr uint64_t kMaxEvents = 20'000'000;  // more indicates an endless loop

[[noreturn]] void throw_assertion(const char* expression, const char* file, int line) {
  fail(Code::internal, fmt::format("{}:{}: expected {}", file, line, expression));
}

/// During its lifetime a failed assertion throws.
class AssertionsThrow {
 public:
  AssertionsThrow() : before_(set_assertion_handler(throw_assertion)) {}
  ~AssertionsThrow() { set_assertion_handler(before_); }
  AssertionsThrow(const AssertionsThrow&) = delete;
  AssertionsThrow& operator=(const AssertionsThrow&) = delete;

 private:
  AssertionHandler before_;
};

std::vector<int32_t> ends_of(const Signature& signature) {
  return is_message(signature) ? signature.members : std::vector<int32_t>{};
}

}  // namespace

NegotiationSim::NegotiationSim(uint64_t seed, const SimOptions& options)
    : dice_(seed),
      program_(options.large_hosts > 0 ? make_large_program(dice_, options.large_hosts)
                                       : make_program(dice_)),
      options_(options),
      census_(program_.drawn),
      checker_(program_, census_) {
  program_.options.rules = rules_without(options.without);
  slowness_ = 1 + dice_.below(50);
  late_sleeps_ = program_.late_rank > 0 && dice_.chance(.4);
  const Topology& topology = program_.topology;
  for (int rank = 0; rank < ranks(); ++rank)
    clients_.emplace_back(rank, topology, program_.options);
  for (int host = 0; host < topology.hosts(); ++host) {
    hubs_.emplace_back(host, topology, program_.options);
  }
  users_.resize(static_cast<size_t>(ranks()));
  engines_.resize(static_cast<size_t>(ranks()));
  dirty_.assign(static_cast<size_t>(ranks() + topology.hosts()), false);
}

void NegotiationSim::run() {
  const AssertionsThrow guard;
  for (int rank = 0; rank < ranks(); ++rank)
    after(dice_.below(50), rank, [=, this] { step_user(rank); });
  if (options_.large_hosts == 0) plan_trouble();
  drain();
  if (program_.late_rank >= 0) {
    if (dead_.empty() && !shut_down_) check_stall();
    wake_late_rank();
    drain();
  }
  check_end();
}

// ---- time, links and nodes
// -----------------------------------------------------------------------

int NegotiationSim::rank_of_node(int node) const {
  return node < ranks() ? node : program_.topology.leader(node - ranks());
}

int NegotiationSim::node_of_child(int host, int child) const {
  const Topology& topology = program_.topology;
  const int local_ranks = static_cast<int>(topology.host_ranks[host].size());
  return child < local_ranks ? topology.host_ranks[host][child]
                             : hub_node(topology.first_child_host(host) + child - local_ranks);
}

/// Every event has a node. Events of dead nodes are dropped, events of sleeping nodes are delayed.
void NegotiationSim::schedule(int64_t when, int node, Event event) {
  events_.push({when, event_count_++, [this, node, event = std::move(event)] {
                  if (!is_alive(node)) return;
                  if (rank_of_node(node) == sleeping_rank_) {
                    slept_through_.emplace_back(node, event);
                  } else {
                    event();
                  }
                }});
}

void NegotiationSim::after(int delay, int node, Event event) {
  schedule(now_ + delay, node, std::move(event));
}

/// Sends in FIFO order on each channel of a link. `event` runs when the message arrives.
void NegotiationSim::deliver(int from, int to, uint64_t channel, const ByteVector& bytes,
                             Event event) {
  int64_t& last = links_[{from, to, channel}];
  const int delay = dice_.chance(.1) ? dice_.below(300) : dice_.below(slowness_);
  last = std::max(last, now_ + 1 + delay);
  const NameHash crossed = hash_name(as_text(bytes));
  digest_ = (digest_ ^ crossed.low ^ static_cast<uint64_t>(last)) * 0x9E3779B97F4A7C15u;
  schedule(last, to, std::move(event));
}

void NegotiationSim::drain() {
  while (!events_.empty()) {
    const Timed next = events_.top();
    events_.pop();
    now_ = next.when;
    next.event();
    if (event_count_ > kMaxEvents) fail(Code::internal, "this never ends");
  }
}

void NegotiationSim::mark_dirty(int node) {
  if (dirty_[node]) return;
  dirty_[node] = true;
  after(dice_.chance(.5) ? 0 : dice_.below(20), node, [=, this] { flush(node); });
}

void NegotiationSim::flush(int node) {
  dirty_[node] = false;
  if (node < ranks()) {
    flush_client(node);
  } else {
    flush_hub(node - ranks());
  }
}

void NegotiationSim::flush_client(int rank) {
  take_actions(rank);
  if (!clients_[rank].has_up()) return;
  const int host = program_.topology.host_of[rank];
  Up up = clients_[rank].take_up();
  if (!up.joined.empty() && options_.without == Without::joined_ranks_are_not_ready)
    spoil_join(rank, up);
  send_up(rank, host, program_.topology.child_towards(host, rank), std::move(up));
}

void NegotiationSim::flush_hub(int host) {
  Hub& hub = hubs_[host];
  hub.turn();
  if (host > 0 && hub.has_up()) {
    const int parent = program_.topology.parent_host(host);
    const int leader = program_.topology.leader(host);
    send_up(hub_node(host), parent, program_.topology.child_towards(parent, leader), hub.take_up());
  }
  send_down(host);
  for (const Hub& each : hubs_) {
    if (each.kept_slots() > 0) census_.count(Ingredient::kept_retired);
  }
}

void NegotiationSim::send_up(int from, int host, int child, Up up) {
  const ByteVector bytes = encode(up);
  deliver(from, hub_node(host), 0, bytes, [=, this] { hear_up(host, child, decode_up(bytes)); });
}

void NegotiationSim::hear_up(int host, int child, const Up& up) {
  Hub& hub = hubs_[host];
  if (!up.joined.empty() && options_.without == Without::entries_before_join) {
    Up rest = up;
    hub.from_child(child, {.joined = std::exchange(rest.joined, {})});
    hub.from_child(child, rest);
  } else {
    hub.from_child(child, up);
  }
  mark_dirty(hub_node(host));
}

void NegotiationSim::send_down(int host) {
  for (const auto& [child, down] : hubs_[host].take_down()) {
    const int node = node_of_child(host, child);
    const auto send = [&](uint64_t channel, const Down& part) {
      const ByteVector bytes = encode(part);
      deliver(hub_node(host), node, channel, bytes,
              [this, node, bytes] { hear_down(node, decode_down(bytes)); });
    };
    if (options_.without == Without::one_stream_for_all_groups) {
      for (const Verdict& verdict : down) send(verdict.group, {verdict});
    } else {
      send(0, down);
    }
  }
}

void NegotiationSim::hear_down(int node, const Down& down) {
  for (const Verdict& verdict : down) {
    if (node >= ranks()) {
      hubs_[node - ranks()].from_parent(verdict);
    } else {
      clients_[node].from_parent(spoil_verdict(node, verdict));
      take_actions(node);
    }
  }
  mark_dirty(node);
}

// ---- users and engines
// ---------------------------------------------------------------------------

void NegotiationSim::step_user(int rank) {
  User& user = users_[rank];
  const std::vector<Instruction>& script = program_.ranks[rank];
  if (user.ended || user.joining || user.next == script.size()) return;
  if (rank == program_.late_rank && user.next == program_.late_at) {
    if (late_sleeps_) sleeping_rank_ = rank;
    return;
  }
  const Instruction& next = script[user.next];
  if (is_blocked(user, next)) return;  // woken when its condition holds
  if (next.type == Instruction::Type::join) {
    user.joining = true;
    HVD_ASSERT(clients_[rank].join());
    mark_dirty(rank);
  } else if (next.type <= Instruction::Type::remove_set && !submit(rank, next)) {
    return;
  }
  ++user.next;
  meet_doom(rank, next.type);
  after(dice_.chance(.7) ? 0 : dice_.below(60), rank, [=, this] { step_user(rank); });
}

bool NegotiationSim::is_blocked(const User& user, const Instruction& next) const {
  const auto is_own = [&](const auto& entry) { return entry.second.set == next.set; };
  switch (next.type) {
    case Instruction::Type::await_set:
      return !user.numbers.contains(next.set);
    case Instruction::Type::await_own:
      return std::any_of(user.in_flight.begin(), user.in_flight.end(), is_own);
    case Instruction::Type::await_all:
      return !user.in_flight.empty();
    default:
      return false;
  }
}

/// Returns false if the name is still in flight.
bool NegotiationSim::submit(int rank, const Instruction& next) {
  User& user = users_[rank];
  const int set = next.type == Instruction::Type::submit ? next.set : kWorldSet;
  const bool is_gone = user.gone.contains(set);
  const GroupNumber number = set == kWorldSet ? kWorldGroup : user.numbers.at(set);
  const Flight flight{set, next.name, next.set, ends_of(next.signature)};
  const auto is_same = [&](const auto& entry) {
    const Flight& other = entry.second;
    return other.set == set && other.name == flight.name && other.between == flight.between;
  };
  Signature signature = next.signature;
  if (next.type == Instruction::Type::remove_set) signature.target = user.numbers.at(next.set);
  const bool is_again = std::any_of(user.in_flight.begin(), user.in_flight.end(), is_same);
  if (is_again && is_message(signature)) {
    census_.count(Ingredient::messages_of_one_name);
  } else if (is_again && !is_gone) {
    if (!dice_.chance(.3)) return false;
    HVD_ASSERT(clients_[rank].submit(number, next.name, signature, 0) == Submitted::duplicate_name);
    census_.count(Ingredient::duplicates);
    return false;
  }
  constexpr GroupNumber kNoGroup = 999999;
  const Submitted result =
      clients_[rank].submit(is_gone ? kNoGroup : number, next.name, signature, next.tag);
  HVD_ASSERT(result == (is_gone ? Submitted::not_a_member : Submitted::accepted));
  if (is_gone) return true;
  user.in_flight[next.tag] = flight;
  census_.count(Ingredient::submissions);
  mark_dirty(rank);
  return true;
}

void NegotiationSim::wake_user(int rank) {
  after(dice_.below(30), rank, [=, this] { step_user(rank); });
}

void NegotiationSim::take_actions(int rank) {
  for (Action& action : clients_[rank].take_actions()) act(rank, std::move(action));
}

void NegotiationSim::act(int rank, Action action) {
  User& user = users_[rank];
  wake_user(rank);
  switch (action.type) {
    case Action::Type::run: {
      const int set = set_of(rank, action.group);
      engines_[rank].queue.emplace_back(set, std::move(action));
      run_engine(rank);
      break;
    }
    case Action::Type::fail:
      checker_.failed(rank, action);
      HVD_ASSERT(user.in_flight.erase(action.tag) == 1);
      break;
    case Action::Type::joined:
      user.joining = false;
      user.joins.push_back(action.rank);
      census_.count(Ingredient::joins);
      break;
    case Action::Type::ended:
      user.ended = true;
      user.lost = action.lost;
      user.cause = action.rank;
      HVD_ASSERT(action.lost != action.text.empty());  // the text describes the loss
      break;
    case Action::Type::set_added: {
      const int set = user.in_flight.extract(action.tag).mapped().subject;
      user.numbers[set] = action.group;
      user.sets[action.group] = set;
      census_.count(Ingredient::sets_added);
      break;
    }
    case Action::Type::set_removed: {
      const int set = user.in_flight.extract(action.tag).mapped().subject;
      user.gone.insert(set);
      census_.count(Ingredient::sets_removed);
      user.sets.erase(action.group);
      break;
    }
  }
}

int NegotiationSim::set_of(int rank, GroupNumber number) const {
  if (number == kWorldGroup) return kWorldSet;
  const auto found = users_[rank].sets.find(number);
  HVD_ASSERT(found != users_[rank].sets.end());
  return found->second;
}

/// Engines run one batch at a time, in the agreed order.
void NegotiationSim::run_engine(int rank) {
  Engine& engine = engines_[rank];
  if (engine.busy || engine.queue.empty() || users_[rank].lost) return;
  engine.busy = true;
  auto [set, batch] = std::move(engine.queue.front());
  engine.queue.pop_front();
  if (options_.without == Without::root_cuts_batches) fuse_queued(engine, batch);
  for (auto& [other, its_batch] : checker_.begin(rank, set, batch)) {
    const int delay = 1 + dice_.below(dice_.chance(.2) ? 400 : slowness_);
    after(delay, other, [this, other = other, set = set, its_batch = its_batch] {
      batch_done(other, set, its_batch);
    });
  }
}

void NegotiationSim::batch_done(int rank, int set, const Action& batch) {
  engines_[rank].busy = false;
  User& user = users_[rank];
  if (user.lost) return;
  const bool is_paced = batch.bound.front().signature->operation.kind != OperationKind::message;
  clients_[rank].free_names(batch.group, batch.bound);
  if (is_paced) clients_[rank].batch_ended(batch.group);
  if (is_paced && rank == 0) {
    hubs_[0].root_rank_done(batch.group);
    mark_dirty(hub_node(0));
  }
  for (const Bound& bound : batch.bound) {
    if (!bound.mine) continue;
    HVD_ASSERT(user.in_flight.at(bound.tag).set == set);
    user.in_flight.erase(bound.tag);
    checker_.finished(bound.tag);
  }
  mark_dirty(rank);
  wake_user(rank);
  run_engine(rank);
}

bool NegotiationSim::is_done(int rank) const {
  return users_[rank].next == program_.ranks[rank].size() && users_[rank].in_flight.empty();
}

// ---- the same, without a rule
// --------------------------------------------------------------------

/// "A joined rank is ready for everything."
void NegotiationSim::spoil_join(int rank, Up& up) const {
  const auto& in_flight = users_[rank].in_flight;
  for (const auto& [slot, signature] : clients_[rank].slots(kWorldGroup)->live()) {
    const auto is_same = [&, &name = signature->name](const auto& entry) {
      return entry.second.set == kWorldSet && hash_name(entry.second.name) == name;
    };
    if (std::any_of(in_flight.begin(), in_flight.end(), is_same)) continue;
    up.entries.push_back({.slot = slot, .substituted = true, .lowest = rank});
  }
}

/// Joined ranks do not receive new slots.
Verdict NegotiationSim::spoil_verdict(int rank, Verdict verdict) const {
  if (options_.without != Without::joined_ranks_learn_slots || !users_[rank].joining)
    return verdict;
  for (Item& item : verdict.items) {
    if (item.define) item.slot = kNoSlot;
  }
  return verdict;
}

/// "Fuse the operations that are queued locally."
void NegotiationSim::fuse_queued(Engine& engine, Action& batch) const {
  const auto is_allreduce = [](const Action& action) {
    return action.bound.front().signature->operation.kind == OperationKind::allreduce;
  };
  while (!engine.queue.empty() && engine.queue.front().second.group == batch.group &&
         is_allreduce(batch) && is_allreduce(engine.queue.front().second)) {
    std::vector<Bound>& more = engine.queue.front().second.bound;
    std::move(more.begin(), more.end(), std::back_inserter(batch.bound));
    engine.queue.pop_front();
  }
}

}  // namespace hvd::sim
