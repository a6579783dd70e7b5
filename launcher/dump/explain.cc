#include "launcher/dump/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kJoin = "join";

/// Words in a path, a function or a line that say what a rank is doing there.
constexpr std::string_view kOfData[] = {"torch/utils/data/", "tensorflow/python/data/", "loader",
                                        "dataset", "next_batch"};
constexpr std::string_view kOfLocks[] = {"acquire", "lock",   "Lock",  "Condition", "Semaphore",
                                         ".join(",  ".wait(", "Event", "queue",     "Queue"};
constexpr std::string_view kOfIo[] = {
    "read of ",  "write of ",    "stat of ",    "list of ",
    "fsync of ", "open",         "stat (",      "request_wait_answer",
    "pipe",      "nfs",          "rpc",         "fuse",
    "folio",     "wait_on_page", "io_schedule", "wait_for_partner",
    "cifs",      "lustre",       "ceph",        "stream_read",
    "recv",      "sk_wait",      "wait_woken",  "stream_data_wait"};

template <class Words>
bool has_any(std::string_view text, const Words& words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

const RankReport* find(const std::vector<RankReport>& reports, int rank) {
  const auto found = std::ranges::find(reports, rank, &RankReport::rank);
  return found == reports.end() ? nullptr : &*found;
}

bool is_waiting(const PendingOperation& one) { return !one.is_agreed && one.name != kJoin; }

/// The operation that a rank itself waits for, other than `name`.
const PendingOperation* other_wait(const RankReport& report, const std::string& name) {
  if (!report.state) return nullptr;
  const auto found = std::ranges::find_if(
      report.state->pending, [&](const auto& one) { return is_waiting(one) && one.name != name; });
  return found == report.state->pending.end() ? nullptr : &*found;
}

/// What the innermost frames, down to the user's code, say.
std::string words_of(const RankReport& report) {
  std::string words;
  const Frame* const place = place_in(report.stack);
  for (const Frame& frame : report.stack) {
    words += fmt::format("{} {} {}\n", frame.file, frame.function, frame.source);
    if (&frame == place) break;
  }
  return words;
}

/// No signal interrupts what its main thread waits for in the kernel.
bool is_uninterruptible(const RankReport& report) {
  return !report.answers && report.run_state == 'D';
}

HangClass class_of(const RankReport& report, const Waited& operation) {
  if (!report.is_reached) return HangClass::unreachable;
  if (report.process == 0 || report.run_state == 'Z') return HangClass::ended;
  if (report.is_stopped()) return HangClass::stopped;
  if (!report.has_board) return HangClass::start;
  if (other_wait(report, operation.name) != nullptr) return HangClass::order;
  if (is_uninterruptible(report)) return HangClass::io;
  if (!report.answers) return has_any(report.kernel, kOfIo) ? HangClass::io : HangClass::no_answer;
  if (!report.gil_holder.empty() || (report.holds_gil && report.run_state != 'R'))
    return HangClass::gil;
  const std::string words = words_of(report);
  if (has_any(words, kOfData)) return HangClass::data;
  if (has_any(report.kernel, kOfIo)) return HangClass::io;
  if (has_any(words, kOfLocks)) return HangClass::lock;
  if (report.state && !report.state->last_failure.empty()) return HangClass::failed;
  return report.run_state == 'R' ? HangClass::busy : HangClass::elsewhere;
}

std::string place_text(const std::vector<Frame>& stack) {
  const Frame* const place = place_in(stack);
  return place == nullptr ? "" : fmt::format(", at {}", to_text(*place));
}

std::string main_thread_at(const RankReport& report) {
  const Frame* const place = place_in(report.stack);
  if (place != nullptr) return fmt::format("its main thread is at {}", to_text(*place));
  return report.kernel.empty() ? "the stack of its main thread is not known"
                               : fmt::format("its main thread is in {}", report.kernel);
}

std::string order_text(const RankReport& report, const Waited& operation) {
  const PendingOperation* const other = other_wait(report, operation.name);
  return fmt::format("it waits for {} instead; {}", other->name, main_thread_at(report));
}

std::string io_text(const RankReport& report) {
  const std::string place = place_text(report.stack);
  if (!is_uninterruptible(report))
    return fmt::format("its main thread waits in {}{}", report.kernel, place);
  return fmt::format(
      "its main thread waits{}{} (state D), which no signal interrupts: a file "
      "system or a device does not answer{}",
      report.kernel.empty() ? "" : " in ", report.kernel, place);
}

std::string no_answer_text(const RankReport& report) {
  return fmt::format("its main thread does not take signals (state {}{}{}){}", report.run_state,
                     report.kernel.empty() ? "" : ", in ", report.kernel, place_text(report.stack));
}

std::string gil_text(const RankReport& report) {
  const bool is_main = report.gil_holder.empty();
  return fmt::format("{} is blocked in C code and holds the GIL{}",
                     is_main ? "its main thread" : "another thread",
                     place_text(is_main ? report.stack : report.gil_holder));
}

std::string failed_text(const RankReport& report) {
  return fmt::format("an operation failed there {} ago, and it runs on; {}",
                     time_text(report.state->since_failure), main_thread_at(report));
}

/// What the missing rank does instead.
std::string doing(HangClass kind, const RankReport& report, const Waited& operation) {
  switch (kind) {
    case HangClass::stopped:
      return fmt::format("its process {} is stopped, by SIGSTOP or a debugger{}", report.process,
                         place_text(report.stack));
    case HangClass::unreachable:
      if (report.host.empty()) return "it does not run on this host";
      return fmt::format("host {} does not answer: it or the network to it is down", report.host);
    case HangClass::ended:
      return "its process has ended";
    case HangClass::start:
      return fmt::format("its process {} has not called hvd.init()", report.process);
    case HangClass::order:
      return order_text(report, operation);
    case HangClass::no_answer:
      return no_answer_text(report);
    case HangClass::gil:
      return gil_text(report);
    case HangClass::io:
      return io_text(report);
    case HangClass::failed:
      return failed_text(report);
    default:
      return main_thread_at(report);
  }
}

/// Another launcher has started it on another host, where no process asks.
bool is_elsewhere(const RankReport& report) { return !report.is_reached && report.host.empty(); }

/// Those of the missing ranks that the cause is about.
std::vector<int> named(const std::vector<RankReport>& reports, const std::vector<int>& missing,
                       HangClass kind) {
  std::vector<int> ranks;
  for (const int rank : missing) {
    const RankReport* const report = find(reports, rank);
    const bool is_named =
        report == nullptr ||
        (kind == HangClass::unreachable ? !report->is_reached : !is_elsewhere(*report));
    if (is_named) ranks.push_back(rank);
  }
  return ranks;
}

/// Whether a rank that cannot be reached has submitted the operation is not known.
std::string missing_text(const Cause& cause, const Waited& operation) {
  const std::string who = ranks_text(cause.ranks), age = time_text(operation.age);
  const std::string waiting = fmt::format("{} {} awaited", ranks_text(operation.submitted),
                                          operation.submitted.size() == 1 ? "has" : "have");
  if (cause.kind == HangClass::unreachable)
    return fmt::format("{} cannot be reached, and {} {} for {}", who, waiting, operation.name, age);
  return fmt::format("{} {} not submitted {}, which {} for {}", who,
                     cause.ranks.size() == 1 ? "has" : "have", operation.name, waiting, age);
}

Cause not_submitted(const std::vector<RankReport>& reports, const Waited& operation) {
  // If several ranks are missing, the one with the clearest reason is explained.
  std::pair best(true, HangClass::elsewhere);
  const RankReport* explained = nullptr;
  for (const int rank : operation.missing) {
    const RankReport* const report = find(reports, rank);
    if (report == nullptr) continue;
    const std::pair one(is_elsewhere(*report), class_of(*report, operation));
    if (explained == nullptr || one < best) std::tie(best, explained) = std::pair(one, report);
  }
  Cause cause{.kind = best.second, .operation = operation.name};
  cause.ranks = named(reports, operation.missing, cause.kind);
  cause.text = missing_text(cause, operation);
  if (explained == nullptr) return cause;
  const std::string who = cause.ranks.size() == 1 ? "" : fmt::format("rank {}: ", explained->rank);
  cause.text += fmt::format("; {}{}", who, doing(cause.kind, *explained, operation));
  return cause;
}

std::vector<const RankReport*> silent(const std::vector<RankReport>& reports) {
  std::vector<const RankReport*> found;
  for (const RankReport& report : reports)
    if (report.is_stopped() || report.process == 0 || (report.has_board && !report.state))
      found.push_back(&report);
  return found;
}

Cause not_ended(const std::vector<RankReport>& reports, const Waited& operation) {
  Cause cause{.kind = HangClass::transfer, .operation = operation.name};
  cause.text =
      fmt::format("{}, which all ranks have submitted, has not ended on {} for {}", operation.name,
                  ranks_text(operation.submitted), time_text(operation.age));
  const auto quiet = silent(reports);
  for (const RankReport* const report : quiet) cause.ranks.push_back(report->rank);
  if (quiet.empty()) return cause;
  const RankReport& first = *quiet.front();
  if (first.is_stopped()) cause.kind = HangClass::stopped;
  if (first.process == 0) cause.kind = first.is_reached ? HangClass::ended : HangClass::unreachable;
  cause.text += fmt::format("; rank {}: {}", first.rank, doing(cause.kind, first, operation));
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

/// Some ranks have not called hvd.init(), which the others wait in.
std::optional<Cause> not_started(const std::vector<RankReport>& reports) {
  Cause cause{.kind = HangClass::start};
  std::vector<int> waiting;
  for (const RankReport& report : reports) {
    if (!report.has_board && report.is_reached) cause.ranks.push_back(report.rank);
    if (report.has_board && report.answers && !report.state) waiting.push_back(report.rank);
  }
  if (cause.ranks.empty() || waiting.empty()) return std::nullopt;
  const RankReport& first = *find(reports, cause.ranks.front());
  if (first.is_stopped()) cause.kind = HangClass::stopped;
  cause.text = fmt::format("{} {} not called hvd.init(), in which {} {}", ranks_text(cause.ranks),
                           cause.ranks.size() == 1 ? "has" : "have", ranks_text(waiting),
                           waiting.size() == 1 ? "waits" : "wait");
  if (first.is_stopped())
    cause.text += "; " + doing(HangClass::stopped, first, {});
  else if (!first.stack.empty())
    cause.text += "; " + main_thread_at(first);
  return cause;
}

bool waits_for_stopped(const std::vector<RankReport>& reports, const Waited& operation) {
  return std::ranges::any_of(operation.missing, [&](int rank) {
    const RankReport* const report = find(reports, rank);
    return report != nullptr && report->is_stopped();
  });
}

Cause nothing_waits(const std::vector<RankReport>& reports) {
  const bool any_told =
      std::ranges::any_of(reports, [](const RankReport& one) { return one.state.has_value(); });
  for (const RankReport& report : reports)
    if (report.is_stopped() || (!report.is_reached && !any_told)) {
      const HangClass kind = report.is_reached ? HangClass::stopped : HangClass::unreachable;
      return {.kind = kind,
              .text = fmt::format("rank {}: {}", report.rank, doing(kind, report, {})),
              .ranks = {report.rank}};
    }
  if (!any_told) return {.text = "no rank has told what it waits for"};
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

/// Adds the ranks that have not submitted it. One that has joined need not.
void add_missing(const std::vector<RankReport>& reports, const Key& key, Waited& operation) {
  for (const RankReport& report : reports) {
    const bool has_joined = report.state && report.state->has_joined;
    if (!has_submitted(report, key) && !has_joined && takes_part(report, key))
      operation.missing.push_back(report.rank);
  }
}

}  // namespace

std::string_view name_of(HangClass kind) {
  constexpr std::string_view kNames[] = {
      "none", "stopped", "ended", "unreachable", "partition", "order",    "gil",       "data",
      "io",   "lock",    "busy",  "failed",      "start",     "transfer", "no_answer", "elsewhere"};
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
  return all;
}

Cause explain(const std::vector<RankReport>& reports) {
  const std::vector<Waited> operations = waited_for(reports);
  const bool waits = !operations.empty() && (operations.front().age >= kHangAge ||
                                             waits_for_stopped(reports, operations.front()));
  if (waits)
    if (auto cause = cut_between_hosts(reports, operations.front())) return *std::move(cause);
  if (waits && !operations.front().missing.empty())
    return not_submitted(reports, operations.front());
  if (waits) return not_ended(reports, operations.front());
  if (auto cause = not_started(reports)) return *std::move(cause);
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
