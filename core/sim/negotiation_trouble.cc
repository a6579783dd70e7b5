// The part of the simulated job that dies, sleeps or ends, and the checks of how that ended.
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
  const int rank = dice_.below(ranks());
  const int when = dice_.below(2500);
  // At the node of rank 0, unless it is the one that dies; the others may be dead or asleep by
  // then.
  if (dice_.chance(.08)) {
    after(when, rank, [=, this] { kill(rank); });
  } else if (dice_.chance(.08)) {
    after(when, rank, [=, this] { shut_down(rank); });
  }
  if (!dice_.chance(.3)) return;
  after(dice_.below(1500), hub_node(0), [=, this] {
    hubs_[0].root()->set_fusion_bytes(static_cast<uint64_t>(dice_.below(500)));
    mark_dirty(hub_node(0));
  });
}

void NegotiationSim::shut_down(int rank) {
  if (is_done(rank)) return;
  shut_down_ = true;
  clients_[rank].shutdown();
  mark_dirty(rank);
}

/// Whoever has a link to the dead rank notices, after what came through the link before.
void NegotiationSim::kill(int rank) {
  bool all_done = true;
  for (int each = 0; each < ranks(); ++each) all_done &= is_done(each);
  if (all_done || dead_rank_ != kNobody) return;
  dead_rank_ = rank;
  ++totals_.deaths;
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

/// Nothing moves any more because of the late rank: the report must say so.
void NegotiationSim::check_stall() {
  if (users_[program_.late_rank].next != program_.late_at)
    wrong("the late rank is stuck elsewhere");
  bool any_waits = false;
  for (int rank = 0; rank < ranks(); ++rank) {
    // Nobody hears of those that wait behind a sleeping leader.
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
  ++totals_.stalls;
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

/// Every rank is told of once, and the right ones are silent.
void NegotiationSim::check_report(const StallReport& report) {
  std::set<int> told;
  for (const auto& [waiting, in_class] : report) {
    for (const int32_t rank : in_class) {
      if (!told.insert(rank).second) wrong("rank {} is reported twice", rank);
      if (waiting.silent != must_be_silent(rank)) wrong("rank {} silent: {}", rank, waiting.silent);
      totals_.silent += waiting.silent ? 1 : 0;
    }
  }
  if (static_cast<int>(told.size()) != ranks()) wrong("{} ranks are reported", told.size());
  const std::string text =
      describe_stall(report, {.process_sets = hubs_[0].root()->process_sets()});
  if (!contains(text, "\nMissing ranks:\n")) wrong("no missing ranks in: {}", text);
  if (sleeping_rank_ == kNobody) {
    check_late_rank_is_named(text);
  } else if (!contains(text, "no answer from rank")) {
    wrong("no silent ranks in: {}", text);
  }
}

/// Everything behind a sleeping leader is silent with it.
bool NegotiationSim::must_be_silent(int rank) const {
  if (sleeping_rank_ == kNobody) return false;
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
  if (!somebody_waits) return;  // the others wait for something that comes after it
  if (!contains(text, fmt::format("\n{}: [", program_.late_rank)) || !contains(text, late.name)) {
    wrong("rank {} misses {}, but the report is: {}", program_.late_rank, late.name, text);
  }
}

void NegotiationSim::wake_late_rank() {
  program_.late_at = kNever;
  sleeping_rank_ = kNobody;
  for (const auto& [node, event] : std::exchange(slept_through_, {})) event();
  after(0, program_.late_rank, [this] { step_user(program_.late_rank); });
}

// ---- the end
// -------------------------------------------------------------------------------------

void NegotiationSim::check_end() {
  totals_.shutdowns += shut_down_ ? 1 : 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank != dead_rank_) check_rank(rank);
  }
  if (dead_rank_ != kNobody) return;
  checker_.all_met();
  if (shut_down_) return;
  for (const Hub& hub : hubs_) HVD_ASSERT(hub.counting() == 0);
  totals_.retirements += clients_[0].slots(kWorldGroup)->retirements();
}

void NegotiationSim::check_rank(int rank) const {
  const User& user = users_[rank];
  if (dead_rank_ != kNobody) {
    if (!user.ended) wrong("rank {} did not learn that rank {} is gone", rank, dead_rank_);
    if (user.lost && user.cause != dead_rank_) {
      wrong("rank {} blames {} instead of {}", rank, user.cause, dead_rank_);
    }
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

/// Slots are a pure function of the stream.
void NegotiationSim::check_slots(int rank) const {
  const SlotTable& here = *clients_[rank].slots(kWorldGroup);
  const SlotTable& there = *clients_[0].slots(kWorldGroup);
  HVD_ASSERT(here.live() == there.live());
  HVD_ASSERT(here.retirements() == there.retirements());
  HVD_ASSERT(here.live_count() <= program_.options.slot_capacity);
}

}  // namespace hvd::sim
