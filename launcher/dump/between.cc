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

std::string_view has(const Reports& reports) { return has_or_have(reports.size()); }

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
  if (stage != RankStage::in_init && report.has_ended()) return false;
  if (stage == RankStage::next_generation) return true;
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

/// Why a rank is missing at a meeting.
enum class Absence : uint8_t { not_there, stands_still, failed };

Absence absence_of(const RankReport& report, const Meeting& meeting) {
  if (meeting_at(report.stage) == meeting.name) return Absence::stands_still;
  const bool has_failed = report.stage == RankStage::init_failed && meeting.name == kInit;
  return has_failed ? Absence::failed : Absence::not_there;
}

/// What the missing ranks have not done, in which the others wait for them.
std::string absence_text(const Meeting& meeting, const Reports& missing, Absence absence) {
  const std::string_view verb = has(missing);
  const bool is_one = missing.size() == 1;
  if (meeting.name == kNextGeneration)
    return fmt::format("{} not asked for {} in {}", verb, is_one ? "its place" : "their places",
                       meeting.name);
  switch (absence) {
    case Absence::stands_still:
      return fmt::format("{} not go on in {}", is_one ? "does" : "do", meeting.name);
    case Absence::failed:
      return fmt::format("{} not called {} again", verb, meeting.name);
    case Absence::not_there:
      break;
  }
  return fmt::format("{} not called {}", verb, meeting.name);
}

/// Whether a rank that cannot be reached is there is not known.
std::string missing_text(const Meeting& meeting, const Reports& missing, const Culprit& culprit) {
  const std::string who = ranks_text(ranks_of(missing)), age = time_text(meeting.age);
  const bool is_place = meeting.name != kNextGeneration;
  if (culprit.kind == HangClass::unreachable)
    return fmt::format("{} cannot be reached, and {} {} {} for {}", who, waited_text(meeting),
                       is_place ? "in" : "for", meeting.name, age);
  return fmt::format("{} {}, {} {} for {}", who,
                     absence_text(meeting, missing, absence_of(*culprit.report, meeting)),
                     is_place ? "in which" : "which",
                     waited_text(meeting, is_place ? "waited" : "awaited"), age);
}

/// Those that the cause is about, among the missing ranks: what is said of the culprit holds for
/// them. Ranks that another launcher has started elsewhere are not known.
Reports named_among(const Meeting& meeting, const Culprit& culprit) {
  Reports named;
  for (const RankReport* const report : meeting.missing) {
    const bool is_like = absence_of(*report, meeting) == absence_of(*culprit.report, meeting);
    const bool is_unreached = culprit.kind == HangClass::unreachable;
    if (is_meant(culprit.kind, *report) && (is_unreached || is_like)) named.push_back(report);
  }
  return named;
}

Cause not_there(const Meeting& meeting) {
  const Culprit culprit = clearest(meeting.missing, meeting.name);
  const Reports named = named_among(meeting, culprit);
  return {.kind = culprit.kind,
          .text = fmt::format("{}; {}{}", missing_text(meeting, named, culprit),
                              one_of(named.size(), *culprit.report),
                              doing(culprit.kind, *culprit.report, meeting.name)),
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

/// After the job, or in a program that runs around the one that trains.
bool is_over(const RankReport* report) {
  return has_shut_down(report) || (report->is_reached && !report->has_board);
}

/// Some processes have ended, and the job is over in all others.
std::optional<Cause> not_ended(const std::vector<RankReport>& reports) {
  Reports ended, left;
  for (const RankReport& report : reports)
    if (report.rank >= 0) (report.has_ended() ? ended : left).push_back(&report);
  if (ended.empty() || left.empty() || !std::ranges::all_of(left, is_over)) return std::nullopt;
  const auto [kind, culprit] = clearest(left, "the end");
  if (culprit->has_board && culprit->stage_age < kHangAge) return std::nullopt;
  const std::string since =
      culprit->has_board ? fmt::format(", {} after {}", time_text(culprit->stage_age), kShutdown)
                         : "";
  const std::string does =
      culprit->has_board
          ? doing(kind, *culprit, "the end")
          : fmt::format("its process {} does not run horovod any more", culprit->process);
  return Cause{.kind = kind,
               .text = fmt::format("{} {} not ended, as {} {}{}; {}{}", ranks_text(ranks_of(left)),
                                   has(left), ranks_text(ranks_of(ended)), has(ended), since,
                                   one_of(left.size(), *culprit), does),
               .operation = "the end",
               .ranks = ranks_of(left)};
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
