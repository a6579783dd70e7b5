#include "launcher/dump/between.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/dump/doing.h"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using Reports = std::vector<const RankReport*>;

/// Ranks that wait for others at one place.
struct Meeting {
  std::string_view name;
  Reports waiting{};
  Reports missing{};
  milliseconds age{};  ///< of the longest wait
};

std::vector<int> ranks_of(const Reports& reports) {
  std::vector<int> ranks;
  for (const RankReport* const report : reports) ranks.push_back(report->rank);
  return ranks;
}

std::string_view has(const Reports& reports) { return reports.size() == 1 ? "has" : "have"; }

/// "ranks 0, 1 have waited".
std::string waited_text(const Meeting& meeting, std::string_view verb = "waited") {
  return fmt::format("{} {} {}", ranks_text(ranks_of(meeting.waiting)), has(meeting.waiting), verb);
}

bool is_stopped(const RankReport* report) { return report->is_stopped(); }

/// A stopped process that has asked for its place can still get it; in init and shutdown it holds
/// up the others.
bool waits(const RankReport& report, RankStage stage) {
  const bool goes_on = stage == RankStage::next_generation || !report.is_stopped();
  return report.stage == stage && report.is_reached && !report.has_ended() && goes_on;
}

bool has_shut_down(const RankReport* report) {
  return report->is_reached &&
         (report->stage == RankStage::after_shutdown || report->stage == RankStage::over);
}

/// Whether ranks that wait in this stage wait for it.
bool is_awaited(const RankReport& report, RankStage stage) {
  if (stage == RankStage::next_generation) return !report.has_ended();
  if (!report.is_reached || report.stage == stage) return true;
  if (stage == RankStage::in_shutdown) return !has_shut_down(&report);
  return report.stage != RankStage::running && report.stage != RankStage::in_shutdown;
}

Meeting meeting_in(const std::vector<RankReport>& reports, RankStage stage) {
  Meeting meeting{.name = meeting_at(stage)};
  for (const RankReport& report : reports) {
    if (report.rank < 0) continue;
    if (waits(report, stage)) {
      meeting.waiting.push_back(&report);
      meeting.age = std::max(meeting.age, report.stage_age);
    } else if (is_awaited(report, stage)) {
      meeting.missing.push_back(&report);
    }
  }
  return meeting;
}

bool is_hang(const Meeting& meeting) {
  return !meeting.waiting.empty() &&
         (meeting.age >= kHangAge || std::ranges::any_of(meeting.missing, is_stopped));
}

/// Whether a rank that cannot be reached is there is not known.
std::string missing_text(const Meeting& meeting, const Reports& missing, HangClass kind) {
  const std::string who = ranks_text(ranks_of(missing)), age = time_text(meeting.age);
  const bool is_place = meeting.name != kNextGeneration;
  if (kind == HangClass::unreachable)
    return fmt::format("{} cannot be reached, and {} {} {} for {}", who, waited_text(meeting),
                       is_place ? "in" : "for", meeting.name, age);
  if (!is_place)
    return fmt::format("{} {} not asked for {} in {}, which {} for {}", who, has(missing),
                       missing.size() == 1 ? "its place" : "their places", meeting.name,
                       waited_text(meeting, "awaited"), age);
  const bool is_there = meeting_at(missing.front()->stage) == meeting.name;
  const std::string where = fmt::format("in which {} for {}", waited_text(meeting), age);
  if (is_there)
    return fmt::format("{} {} not go on in {}, {}", who, missing.size() == 1 ? "does" : "do",
                       meeting.name, where);
  return fmt::format("{} {} not called {}, {}", who, has(missing), meeting.name, where);
}

/// Ranks that another launcher has started elsewhere are not known, so they are not named beside
/// others.
Reports named_among(const Reports& missing, HangClass kind) {
  Reports named;
  for (const RankReport* const report : missing)
    if (kind == HangClass::unreachable ? !report->is_reached : !is_elsewhere(*report))
      named.push_back(report);
  return named;
}

/// "rank 3: ", if it is one of several.
std::string one_of(const Reports& reports, const RankReport& culprit) {
  return reports.size() == 1 ? "" : fmt::format("rank {}: ", culprit.rank);
}

Cause not_there(const Meeting& meeting) {
  const auto [kind, culprit] = clearest(meeting.missing, meeting.name);
  const Reports named = named_among(meeting.missing, kind);
  return {.kind = kind,
          .text = fmt::format("{}; {}{}", missing_text(meeting, named, kind),
                              one_of(named, *culprit), doing(kind, *culprit, meeting.name)),
          .operation = std::string(meeting.name),
          .ranks = ranks_of(named)};
}

/// All ranks are there.
Cause not_over(const Meeting& meeting) {
  return {.kind = HangClass::transfer,
          .text = fmt::format("all ranks are in {}, in which {} for {}", meeting.name,
                              waited_text(meeting), time_text(meeting.age)),
          .operation = std::string(meeting.name)};
}

/// All members have asked for their places, and the launcher waits for others.
Cause too_few(const Meeting& meeting, const std::vector<RankReport>& reports) {
  Cause cause{.kind = HangClass::slots, .operation = std::string(meeting.name)};
  cause.text = fmt::format("{} for {} for {}: the job waits for more workers (--min-np)",
                           waited_text(meeting), meeting.name, time_text(meeting.age));
  Reports newcomers;
  for (const RankReport& report : reports)
    if (report.rank < 0 && report.stage == RankStage::before_init) newcomers.push_back(&report);
  const auto [kind, culprit] = clearest(newcomers, meeting.name);
  if (culprit == nullptr) return cause;
  cause.kind = kind;
  for (const RankReport* const report : newcomers) cause.workers.push_back(report->worker);
  cause.text += fmt::format("; {} has not called hvd.init(); {}", subject_of(*culprit),
                            doing(kind, *culprit, meeting.name));
  return cause;
}

Cause cause_of(const Meeting& meeting, const std::vector<RankReport>& reports) {
  if (!meeting.missing.empty()) return not_there(meeting);
  return meeting.name == kNextGeneration ? too_few(meeting, reports) : not_over(meeting);
}

/// Some processes have ended, and hvd.shutdown() has ended the job in all others.
std::optional<Cause> not_ended(const std::vector<RankReport>& reports) {
  Meeting end{.name = "the end"};
  for (const RankReport& report : reports) {
    if (report.rank < 0) continue;
    (report.has_ended() ? end.waiting : end.missing).push_back(&report);
  }
  if (end.waiting.empty() || end.missing.empty() ||
      !std::ranges::all_of(end.missing, has_shut_down))
    return std::nullopt;
  const auto [kind, culprit] = clearest(end.missing, end.name);
  if (culprit->stage_age < kHangAge) return std::nullopt;
  return Cause{.kind = kind,
               .text = fmt::format("{} {} not ended, as {} {}, {} after hvd.shutdown(); {}{}",
                                   ranks_text(ranks_of(end.missing)), has(end.missing),
                                   ranks_text(ranks_of(end.waiting)), has(end.waiting),
                                   time_text(culprit->stage_age), one_of(end.missing, *culprit),
                                   doing(kind, *culprit, end.name)),
               .operation = std::string(end.name),
               .ranks = ranks_of(end.missing)};
}

}  // namespace

std::optional<Cause> between_operations(const std::vector<RankReport>& reports) {
  std::optional<Meeting> longest;
  for (const RankStage stage :
       {RankStage::in_init, RankStage::next_generation, RankStage::in_shutdown}) {
    Meeting meeting = meeting_in(reports, stage);
    if (is_hang(meeting) && (!longest || meeting.age > longest->age)) longest = std::move(meeting);
  }
  return longest ? cause_of(*longest, reports) : not_ended(reports);
}

}  // namespace hvd::launcher
