// Deaths, sleep and the end of the simulated job, and their checks.
#include <fmt/core.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/negotiate/stall.h"
#include "core/sim/negotiation_sim.h"

namespace hvd::sim {
namespace {

constexpr const char* kCauseOfDeath = "its process ended (killed by signal 9)";

template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  fail(Code::internal, fmt::format(format, std::forward<Args>(args)...));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

void NegotiationSim::plan_trouble() {
  plan_deaths();
  if (dice_.chance(.1)) {
    const int rank = dice_.below(ranks());
    after(dice_.below(2500), rank, [=, this] { shut_down(rank); });
  }
  // At the node of rank 0, unless that rank dies. Others may be dead or asleep by then.
  if (!dice_.chance(.3)) return;
  after(dice_.below(1500), hub_node(0), [=, this] {
    hubs_[0].root()->set_fusion_bytes(static_cast<uint64_t>(dice_.below(500)));
    mark_dirty(hub_node(0));
  });
}

/// Dies at any time, or just after the start of an operation that needs all ranks.
void NegotiationSim::plan_deaths() {
  const int rank = dice_.below(ranks());
  if (dice_.chance(.3)) next_victim_ = (rank + 1 + dice_.below(ranks() - 1)) % ranks();
  if (dice_.chance(.08)) {
    const int latest = dice_.chance(.5) ? 2500 : 15000;
    after(dice_.below(latest), rank, [=, this] { kill(rank); });
  } else if (dice_.chance(.12)) {
    doomed_rank_ = rank;
    doom_ = dice_.chance(.5) ? Instruction::Type::join : Instruction::Type::add_set;
  }
}

void NegotiationSim::meet_doom(int rank, Instruction::Type step) {
  if (rank != doomed_rank_ || step != doom_ || dice_.chance(.6)) return;
  doomed_rank_ = kNoRank;
  after(dice_.below(3 * slowness_), rank, [=, this] { kill(rank); });
}

void NegotiationSim::shut_down(int rank) {
  if (is_done(rank)) return;
  shut_down_ = true;
  clients_[rank].shutdown();
  mark_dirty(rank);
}

void NegotiationSim::kill(int rank) {
  bool all_done = true;
  for (int each = 0; each < ranks(); ++each) all_done &= is_done(each);
  if (all_done) return;
  count_death();
  dead_.insert(rank);
  tell_of_death(rank);
  const int next = std::exchange(next_victim_, kNoRank);
  if (next != kNoRank) after(dice_.below(4 * slowness_), next, [=, this] { kill(next); });
}

void NegotiationSim::count_death() {
  census_.count(dead_.empty() ? Ingredient::deaths : Ingredient::two_deaths);
  const auto is_joining = [](const User& user) { return user.joining; };
  const bool any_joins = std::any_of(users_.begin(), users_.end(), is_joining);
  const bool all_join = std::all_of(users_.begin(), users_.end(), is_joining);
  if (any_joins && !all_join) census_.count(Ingredient::deaths_in_join);
  const bool any_adds = std::any_of(users_.begin(), users_.end(), [](const User& user) {
    return std::any_of(user.in_flight.begin(), user.in_flight.end(), [&](const auto& entry) {
      const int subject = entry.second.subject;
      return entry.second.set != subject && !user.numbers.contains(subject);
    });
  });
  if (any_adds) census_.count(Ingredient::deaths_in_set_creation);
}

/// All nodes with a link to the dead rank detect the loss, after the messages sent before it.
void NegotiationSim::tell_of_death(int rank) {
  const Topology& topology = program_.topology;
  const int host = topology.host_of[rank];
  const auto notice_child = [&](int from, int at_host) {
    deliver(from, hub_node(at_host), 0, {}, [this, at_host, rank] {
      hubs_[at_host].lost_child(rank, kCauseOfDeath);
      mark_dirty(hub_node(at_host));
    });
  };
  if (!topology.is_leader(rank)) return notice_child(rank, host);
  if (host > 0) notice_child(hub_node(host), topology.parent_host(host));
  for (int child = 0; child < topology.children(host); ++child) {
    const int node = node_of_child(host, child);
    deliver(hub_node(host), node, 0, {}, [this, node, rank] {
      if (node < ranks()) {
        clients_[node].parent_lost(rank, kCauseOfDeath);
        take_actions(node);
      } else {
        hubs_[node - ranks()].lost_parent(rank, kCauseOfDeath);
      }
      mark_dirty(node);
    });
  }
}

// ---- the stall report
// ----------------------------------------------------------------------------

/// The late rank blocks the job, which the report must state.
void NegotiationSim::check_stall() {
  if (users_[program_.late_rank].next != program_.late_at)
    wrong("the late rank is stuck elsewhere");
  bool any_waits = false;
  for (int rank = 0; rank < ranks(); ++rank) {
    // Ranks behind a sleeping leader cannot report.
    const bool can_complain = rank != program_.late_rank && !must_be_silent(rank);
    any_waits |= can_complain && clients_[rank].waiting() > 0;
  }
  if (!any_waits) return;
  const int periods = 4 + program_.topology.levels_below(0);
  int reports = 0;
  for (int i = 0; i < periods; ++i) {
    tick_all();
    drain();
    const std::optional<StallReport> report = hubs_[0].root()->take_report();
    if (!report) continue;
    ++reports;
    check_report(*report);
  }
  if (reports == 0) wrong("nobody reports the stall");
  census_.count(Ingredient::stalls);
}

void NegotiationSim::tick_all() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == sleeping_rank_) continue;
    clients_[rank].tick();
    mark_dirty(rank);
  }
  for (int host = 0; host < program_.topology.hosts(); ++host) {
    if (program_.topology.leader(host) == sleeping_rank_) continue;
    hubs_[host].tick();
    mark_dirty(hub_node(host));
  }
}

/// The report lists every rank once, and the correct ranks as silent.
void NegotiationSim::check_report(const StallReport& report) {
  std::set<int> told;
  for (const auto& [waiting, in_class] : report) {
    for (const int32_t rank : in_class) {
      if (!told.insert(rank).second) wrong("rank {} is reported twice", rank);
      if (waiting.silent != must_be_silent(rank)) wrong("rank {} silent: {}", rank, waiting.silent);
      if (waiting.silent) census_.count(Ingredient::silent_ranks);
    }
  }
  if (static_cast<int>(told.size()) != ranks()) wrong("{} ranks are reported", told.size());
  const std::string text =
      describe_stall(report, {.process_sets = hubs_[0].root()->process_sets()});
  if (!contains(text, "\nMissing ranks:\n")) wrong("no missing ranks in: {}", text);
  if (sleeping_rank_ == kNoRank) {
    check_late_rank_is_named(text);
  } else if (!contains(text, "no answer from rank")) {
    wrong("no silent ranks in: {}", text);
  }
}

/// All ranks behind a sleeping leader are silent, too.
bool NegotiationSim::must_be_silent(int rank) const {
  if (sleeping_rank_ == kNoRank) return false;
  const Topology& topology = program_.topology;
  if (!topology.is_leader(sleeping_rank_)) return rank == sleeping_rank_;
  const int host = topology.host_of[sleeping_rank_];
  return topology.child_towards(host, rank) >= 0;
}

void NegotiationSim::check_late_rank_is_named(const std::string& text) const {
  const Instruction& late = program_.ranks[program_.late_rank][program_.late_at];
  bool somebody_waits = false;
  for (int rank = 0; rank < ranks(); ++rank) {
    for (const auto& [tag, flight] : users_[rank].in_flight) somebody_waits |= tag == late.tag;
  }
  if (!somebody_waits) return;  // the others wait for a later operation
  if (!contains(text, fmt::format("\n{}: [", program_.late_rank)) || !contains(text, late.name)) {
    wrong("rank {} misses {}, but the report is: {}", program_.late_rank, late.name, text);
  }
}

void NegotiationSim::wake_late_rank() {
  program_.late_at = kNever;
  sleeping_rank_ = kNoRank;
  for (const auto& [node, event] : std::exchange(slept_through_, {})) event();
  after(0, program_.late_rank, [this] { step_user(program_.late_rank); });
}

// ---- the end
// -------------------------------------------------------------------------------------

void NegotiationSim::check_end() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!dead_.contains(rank)) check_rank(rank);
  }
  count_mixture();
  if (!dead_.empty()) return;
  checker_.all_met();
  if (shut_down_) return;
  for (const Hub& hub : hubs_) HVD_ASSERT(hub.counting() == 0);
}

void NegotiationSim::count_mixture() {
  const auto count_if = [&](bool happened, Ingredient what) {
    if (happened) census_.count(what);
    return happened;
  };
  count_if(shut_down_, Ingredient::shutdowns);
  count_if(shut_down_ && !dead_.empty(), Ingredient::shutdowns_and_deaths);
  count_if(users_[0].joins.size() > 1, Ingredient::several_joins);
  const bool any_retired = std::any_of(clients_.begin(), clients_.end(), [](const Client& client) {
    return client.slots(kWorldGroup)->retirements() > 0;
  });
  count_if(any_retired, Ingredient::evictions);
  const bool mixed = any_retired && census_.has(Ingredient::joins) &&
                     census_.has(Ingredient::sets_added) && census_.has(Ingredient::changes);
  count_if(mixed, Ingredient::mixed);
  count_if(mixed && !dead_.empty(), Ingredient::mixed_with_loss);
}

void NegotiationSim::check_rank(int rank) const {
  const User& user = users_[rank];
  if (!dead_.empty()) {
    if (!user.ended) wrong("rank {} did not learn that rank {} is gone", rank, *dead_.begin());
    if (user.lost && !dead_.contains(user.cause)) wrong("rank {} blames {}", rank, user.cause);
  } else if (shut_down_) {
    if (!user.ended || user.lost) wrong("rank {} did not shut down", rank);
    const Engine& engine = engines_[rank];
    if (engine.busy || !engine.queue.empty()) wrong("rank {} has batches left", rank);
  } else {
    if (!is_done(rank)) {
      std::string waits;
      for (const auto& [tag, flight] : user.in_flight) {
        waits += fmt::format(" {} of set {}", flight.name, flight.set);
      }
      wrong("rank {} hangs at instruction {} of {}, waiting for{}", rank, user.next,
            program_.ranks[rank].size(), waits);
    }
    if (user.joins != users_[0].joins) wrong("rank {} saw others join last", rank);
    check_slots(rank);
  }
}

/// Slots are a pure function of the verdicts.
void NegotiationSim::check_slots(int rank) const {
  const SlotTable& here = *clients_[rank].slots(kWorldGroup);
  const SlotTable& there = *clients_[0].slots(kWorldGroup);
  HVD_ASSERT(here.live() == there.live());
  HVD_ASSERT(here.retirements() == there.retirements());
  HVD_ASSERT(here.live_count() <= program_.options.slot_capacity);
}

}  // namespace hvd::sim
