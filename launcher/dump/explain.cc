#include "launcher/dump/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "launcher/dump/between.h"
#include "launcher/dump/chain.h"
#include "launcher/dump/doing.h"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLinksShown = 4;
constexpr std::chrono::seconds kLongStep{10};

const RankReport* find(const std::vector<RankReport>& reports, int rank) {
  const auto found = std::ranges::find(reports, rank, &RankReport::rank);
  return found == reports.end() ? nullptr : &*found;
}

/// Those of the missing ranks that the cause is about.
std::vector<int> named(const std::vector<RankReport>& reports, const std::vector<int>& missing,
                       HangClass kind) {
  std::vector<int> ranks;
  for (const int rank : missing) {
    const RankReport* const report = find(reports, rank);
    if (report == nullptr || is_meant(kind, *report)) ranks.push_back(rank);
  }
  return ranks;
}

/// Whether a rank that cannot be reached has submitted the operation is not known.
std::string missing_text(const Cause& cause, const Waited& operation) {
  const std::string who = ranks_text(cause.ranks), age = time_text(operation.age);
  const std::string others = fmt::format("{} {}", ranks_text(operation.submitted),
                                         has_or_have(operation.submitted.size()));
  const bool is_join = operation.name == kJoinCall, is_call = operation.is_call || is_join;
  if (cause.kind == HangClass::unreachable)
    return fmt::format("{} cannot be reached, and {} {} {} for {}", who, others,
                       is_call ? "waited in" : "awaited", operation.name, age);
  const std::string_view has = has_or_have(cause.ranks.size());
  if (is_call)
    return fmt::format("{} {} not {} {}, in which {} waited for {}", who, has,
                       is_join ? "called" : "entered", operation.name, others, age);
  return fmt::format("{} {} not submitted {}, which {} awaited for {}", who, has, operation.name,
                     others, age);
}

Cause not_submitted(const std::vector<RankReport>& reports, const Waited& operation) {
  std::vector<const RankReport*> missing;
  for (const int rank : operation.missing)
    if (const RankReport* const report = find(reports, rank)) missing.push_back(report);
  const Culprit culprit = clearest(missing, operation.name);
  Cause cause{.kind = culprit.kind, .operation = operation.name};
  cause.ranks = named(reports, operation.missing, cause.kind);
  cause.text = missing_text(cause, operation);
  if (culprit.report == nullptr) return cause;
  cause.text += fmt::format("; {}{}", one_of(cause.ranks.size(), *culprit.report),
                            doing(cause.kind, *culprit.report, operation.name));
  return cause;
}

/// No rank of a cycle is more to blame than the others.
Cause waiting_in_a_cycle(const std::vector<Link>& cycle) {
  Cause cause{.kind = HangClass::order, .operation = cycle.front().operation->name};
  milliseconds age = cycle.front().operation->age;
  std::set<int> ranks;
  std::string links;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Link& link = cycle[i];
    ranks.insert(link.waiting.begin(), link.waiting.end());
    age = std::min(age, link.operation->age);
    if (i < kLinksShown)
      links += fmt::format("{} {} for {}, which {} {} not submitted", i == 0 ? ":" : ";",
                           ranks_text(link.waiting), link.operation->name, ranks_text(link.missing),
                           has_or_have(link.missing.size()));
  }
  if (cycle.size() > kLinksShown) links += fmt::format("; and {} more", cycle.size() - kLinksShown);
  cause.ranks.assign(ranks.begin(), ranks.end());
  cause.text = fmt::format("{} have waited for each other for {}{}", ranks_text(cause.ranks),
                           time_text(age), links);
  return cause;
}

bool is_silent(const RankReport& report) {
  const bool tells = report.state || !report.has_board;
  return !report.is_reached || report.is_stopped() || report.has_ended() || !tells;
}

std::vector<const RankReport*> silent(const std::vector<RankReport>& reports) {
  std::vector<const RankReport*> found;
  for (const RankReport& report : reports)
    if (report.rank >= 0 && is_silent(report)) found.push_back(&report);
  return found;
}

/// During an operation that all ranks have submitted, the stack of a rank does not say why.
HangClass class_during_transfer(const RankReport* report) {
  if (!report->is_reached) return HangClass::unreachable;
  if (report->has_ended()) return HangClass::ended;
  return report->is_stopped() ? HangClass::stopped : HangClass::transfer;
}

Cause not_ended(const std::vector<RankReport>& reports, const Waited& operation) {
  Cause cause{.kind = HangClass::transfer, .operation = operation.name};
  cause.text =
      fmt::format("{}, which {}, has not ended on {} for {}", operation.name,
                  operation.is_call ? "all its ranks have entered" : "all ranks have submitted",
                  ranks_text(operation.submitted), time_text(operation.age));
  const auto quiet = silent(reports);
  for (const RankReport* const report : quiet) cause.ranks.push_back(report->rank);
  if (quiet.empty()) return cause;
  const RankReport& clearest = **std::ranges::min_element(quiet, {}, class_during_transfer);
  cause.kind = class_during_transfer(&clearest);
  cause.text +=
      fmt::format("; rank {}: {}", clearest.rank, doing(cause.kind, clearest, operation.name));
  return cause;
}

/// One end of a connection between two hosts that answer, whose other end does not answer there.
struct Cut {
  const RankReport* from = nullptr;
  const RankReport* to = nullptr;
  milliseconds silence{};
};

std::vector<Cut> cuts_in(const std::vector<RankReport>& reports) {
  std::vector<Cut> cuts;
  for (const RankReport& report : reports) {
    if (!report.state) continue;
    for (const SilentPeer& peer : report.state->silent) {
      const RankReport* const other = find(reports, peer.rank);
      if (other != nullptr && other->is_reached) cuts.push_back({&report, other, peer.silence});
    }
  }
  return cuts;
}

/// All ranks between the hosts of the cut that has lasted longest are named.
std::optional<Cause> cut_between_hosts(const std::vector<RankReport>& reports,
                                       const Waited& operation) {
  const std::vector<Cut> cuts = cuts_in(reports);
  if (cuts.empty()) return std::nullopt;
  const Cut& cut = *std::ranges::max_element(cuts, {}, &Cut::silence);
  const std::set<std::string> hosts{cut.from->host, cut.to->host};
  std::set<int> ranks;
  for (const Cut& one : cuts)
    if (hosts.contains(one.from->host) && hosts.contains(one.to->host))
      ranks.insert({one.from->rank, one.to->rank});
  const std::vector<PendingOperation>& pending = cut.from->state->pending;
  const bool knows = !pending.empty();
  Cause cause{.kind = HangClass::partition,
              .operation = knows ? pending.front().name : operation.name,
              .ranks = {ranks.begin(), ranks.end()}};
  cause.text = fmt::format(
      "host {} cannot be reached from host {}: rank {} there has heard nothing from rank {} for "
      "{}, and {} has not ended for {}; both hosts answer horovodrun, so the network between them "
      "is down",
      cut.to->host, cut.from->host, cut.from->rank, cut.to->rank, time_text(cut.silence),
      cause.operation, time_text(knows ? pending.front().age : operation.age));
  return cause;
}

bool waits_for_stopped(const std::vector<RankReport>& reports, const Waited& operation) {
  return std::ranges::any_of(operation.missing, [&](int rank) {
    const RankReport* const report = find(reports, rank);
    return report != nullptr && report->is_stopped();
  });
}

/// The stage of a running rank does not say what it waits for.
bool has_told(const RankReport& report) {
  return report.state || (report.has_board && report.stage != RankStage::running);
}

bool is_importing(const RankReport& report) {
  return report.is_reached && !report.has_ended() && !report.has_board;
}

Cause nothing_waits(const std::vector<RankReport>& reports) {
  const bool any_told = std::ranges::any_of(reports, has_told);
  for (const RankReport& report : reports)
    if (report.is_stopped() || (!report.is_reached && !any_told)) {
      const HangClass kind = report.is_reached ? HangClass::stopped : HangClass::unreachable;
      Cause cause{.kind = kind,
                  .text = fmt::format("{}: {}", subject_of(report), doing(kind, report, {}))};
      if (report.rank >= 0) cause.ranks.push_back(report.rank);
      if (report.rank < 0) cause.workers.push_back(report.worker);
      return cause;
    }
  if (!any_told)
    return {.text = !reports.empty() && std::ranges::all_of(reports, is_importing)
                        ? "no rank has imported horovod yet"
                        : "no rank has told what it waits for"};
  return {.text = fmt::format("no rank has waited for another one for {} or longer",
                              time_text(kHangAge))};
}

using Key = std::pair<std::string, std::vector<int32_t>>;  // name, ranks

bool takes_part(const RankReport& report, const Key& key) {
  return key.second.empty() || std::ranges::find(key.second, report.rank) != key.second.end();
}

/// Whether it waits for the operation, or runs it already.
bool has_submitted(const RankReport& report, const Key& key) {
  return report.state &&
         std::ranges::any_of(report.state->pending, [&](const PendingOperation& one) {
           return one.name == key.first && one.between == key.second;
         });
}

bool has_joined(const RankReport& report) { return report.state && report.state->has_joined; }

/// Adds the ranks that have not submitted it. One that has joined need not, except for calls.
void add_missing(const std::vector<RankReport>& reports, const Key& key, Waited& operation) {
  for (const RankReport& report : reports) {
    const bool need_not = has_joined(report) && !operation.is_call;
    if (report.rank >= 0 && !has_submitted(report, key) && !need_not && takes_part(report, key))
      operation.missing.push_back(report.rank);
  }
}

/// Whether a rank that has not joined does not train on either: it has submitted nothing while the
/// others waited, or for long after the steps that it had left. This is not known of a rank that
/// another launcher has started elsewhere, or that tells nothing although it runs.
bool is_quiet(const RankReport& report, milliseconds wait) {
  if (!report.state)
    return (!report.is_reached && !is_elsewhere(report)) || report.has_ended() ||
           report.is_stopped();
  const std::vector<PastOperation>& last = report.state->last;
  if (report.stage != RankStage::running || last.empty()) return true;
  const milliseconds quiet = last.front().age;
  return quiet >= wait || (quiet >= kLongStep && 2 * quiet >= wait);
}

/// Ranks that have joined wait for the others to join, but only if these do not train on.
std::optional<Waited> awaited_join(const std::vector<RankReport>& reports) {
  Waited join{.name = std::string(kJoinCall), .what = std::string(kJoin)};
  for (const RankReport& report : reports) {
    if (!has_joined(report)) continue;
    join.submitted.push_back(report.rank);
    for (const PendingOperation& one : report.state->pending)
      if (one.name == kJoin) join.age = std::max(join.age, one.age);
  }
  for (const RankReport& report : reports) {
    if (report.rank < 0 || has_joined(report)) continue;
    if (!is_quiet(report, join.age)) return std::nullopt;
    join.missing.push_back(report.rank);
  }
  return join.submitted.empty() || join.missing.empty() ? std::nullopt : std::optional(join);
}

}  // namespace

std::string_view name_of(HangClass kind) {
  constexpr std::string_view kNames[] = {
      "none",  "stopped",  "ended", "unreachable", "partition", "order",
      "gil",   "data",     "io",    "lock",        "busy",      "failed",
      "start", "transfer", "slots", "no_answer",   "elsewhere"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Waited> waited_for(const std::vector<RankReport>& reports) {
  std::map<std::pair<Key, bool>, Waited> found;
  for (const RankReport& report : reports) {
    if (!report.state) continue;
    for (const PendingOperation& one : report.state->pending) {
      if (one.name == kJoin) continue;
      Waited& operation = found[{{one.name, one.between}, one.is_agreed}];
      operation.name = one.name;
      operation.what = one.what;
      operation.is_call = one.is_call;
      operation.submitted.push_back(report.rank);
      operation.age = std::max(operation.age, one.age);
    }
  }
  std::vector<Waited> all;
  for (auto& [key, operation] : found) {
    if (!key.second) add_missing(reports, key.first, operation);
    all.push_back(std::move(operation));
  }
  milliseconds oldest{0};
  for (const Waited& one : all) oldest = std::max(oldest, one.age);
  // Operations that wait for few ranks name the culprits. Young ones may just be in progress.
  std::ranges::stable_sort(all, {}, [&](const Waited& one) {
    const bool is_agreed = one.missing.empty();
    return std::tuple(2 * one.age < oldest, is_agreed, one.missing.size(), -one.age.count());
  });
  put_end_of_chain_first(all);
  if (all.empty())
    if (auto join = awaited_join(reports)) all.push_back(*std::move(join));
  return all;
}

Cause explain(const std::vector<RankReport>& reports) {
  const std::vector<Waited> operations = waited_for(reports);
  const bool waits = !operations.empty() && (operations.front().age >= kHangAge ||
                                             waits_for_stopped(reports, operations.front()));
  if (waits)
    if (auto cause = cut_between_hosts(reports, operations.front())) return *std::move(cause);
  if (const auto cycle = cycle_in(operations); waits && !cycle.empty())
    return waiting_in_a_cycle(cycle);
  if (waits && !operations.front().missing.empty())
    return not_submitted(reports, operations.front());
  if (waits) return not_ended(reports, operations.front());
  if (auto cause = between_operations(reports)) return *std::move(cause);
  return nothing_waits(reports);
}

std::string ranks_text(const std::vector<int>& ranks) {
  const std::set<int> sorted(ranks.begin(), ranks.end());
  std::string text = sorted.size() == 1 ? "rank " : "ranks ";
  for (auto first = sorted.begin(); first != sorted.end();) {
    auto last = first;
    while (std::next(last) != sorted.end() && *std::next(last) == *last + 1) ++last;
    if (first != sorted.begin()) text += ", ";
    text += std::to_string(*first);
    if (*last > *first) text += (*last == *first + 1 ? ", " : "-") + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

std::string time_text(milliseconds time) {
  const double seconds = static_cast<double>(time.count()) / 1e3;
  return seconds < 9.95 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

}  // namespace hvd::launcher
