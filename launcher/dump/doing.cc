#include "launcher/dump/doing.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "core/transport/worker_id.h"

namespace hvd::launcher {
namespace {

/// Words in a path, a function or a line that say what a rank is doing there.
constexpr std::string_view kOfData[] = {"torch/utils/data/", "tensorflow/python/data/", "loader",
                                        "dataset", "next_batch"};
constexpr std::string_view kOfLocks[] = {"acquire", "lock",   "Lock",  "Condition", "Semaphore",
                                         ".join(",  ".wait(", "Event", "queue",     "Queue"};
constexpr std::string_view kOfIo[] = {
    "read of ",  "write of ",    "stat of ",    "readdir of ",
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

bool is_waiting(const PendingOperation& one) { return !one.is_agreed && one.name != kJoin; }

/// What a rank itself waits for, other than `awaited`; empty: nothing.
std::string_view other_wait(const RankReport& report, std::string_view awaited) {
  const std::string_view meeting = meeting_at(report.stage);
  if (meeting != awaited && !meeting.empty()) return meeting;
  if (!report.state) return {};
  const auto found = std::ranges::find_if(report.state->pending, [&](const PendingOperation& one) {
    return is_waiting(one) && one.name != awaited;
  });
  return found == report.state->pending.end() ? std::string_view() : found->name;
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

bool runs_on_after_failure(const RankReport& report) {
  return report.stage == RankStage::failed || report.stage == RankStage::init_failed ||
         (report.state && !report.state->last_failure.empty());
}

/// Of a rank whose stack and place in the kernel say nothing more.
HangClass otherwise(const RankReport& report) {
  if (runs_on_after_failure(report)) return HangClass::failed;
  if (report.stage == RankStage::before_init) return HangClass::start;
  return report.run_state == 'R' ? HangClass::busy : HangClass::elsewhere;
}

std::string place_text(const std::vector<Frame>& stack) {
  const Frame* const place = place_in(stack);
  return place == nullptr ? "" : fmt::format(", at {}", to_text(*place));
}

std::string order_text(const RankReport& report, std::string_view awaited) {
  return fmt::format("it waits for {} instead; {}", other_wait(report, awaited),
                     main_thread_at(report));
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
  if (report.outlives_main) return "its main thread has ended, and its process runs on";
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
  const std::string at = main_thread_at(report);
  if (report.state && !report.state->last_failure.empty())
    return fmt::format("an operation failed there {} ago, and it runs on; {}",
                       time_text(report.state->since_failure), at);
  const std::string age = time_text(report.stage_age);
  if (report.stage == RankStage::init_failed)
    return fmt::format("hvd.init() failed there {} ago, and it runs on; {}", age, at);
  return fmt::format("an error ended its generation {} ago, and it runs on; {}", age, at);
}

std::string start_text(const RankReport& report) {
  return report.has_board ? main_thread_at(report)
                          : fmt::format("its process {} has not imported horovod; {}",
                                        report.process, main_thread_at(report));
}

}  // namespace

std::string_view meeting_at(RankStage stage) {
  if (stage == RankStage::in_init) return kInit;
  if (stage == RankStage::next_generation) return kNextGeneration;
  return stage == RankStage::in_shutdown ? kShutdown : std::string_view();
}

std::string subject_of(const RankReport& report) {
  if (report.rank >= 0) return fmt::format("rank {}", report.rank);
  const auto worker = worker_from(report.worker);
  return fmt::format("the worker without a rank in slot {} of {}", worker ? worker->slot : 0,
                     report.host);
}

HangClass class_of(const RankReport& report, std::string_view awaited) {
  if (!report.is_reached) return HangClass::unreachable;
  if (report.has_ended()) return HangClass::ended;
  if (report.is_stopped()) return HangClass::stopped;
  if (!report.has_board) return HangClass::start;
  if (!other_wait(report, awaited).empty()) return HangClass::order;
  if (is_uninterruptible(report)) return HangClass::io;
  if (!report.answers) return has_any(report.kernel, kOfIo) ? HangClass::io : HangClass::no_answer;
  if (!report.gil_holder.empty() || (report.holds_gil && report.run_state != 'R'))
    return HangClass::gil;
  const std::string words = words_of(report);
  if (has_any(words, kOfData)) return HangClass::data;
  if (has_any(report.kernel, kOfIo)) return HangClass::io;
  if (has_any(words, kOfLocks)) return HangClass::lock;
  return otherwise(report);
}

std::string main_thread_at(const RankReport& report) {
  const Frame* const place = place_in(report.stack);
  if (place != nullptr) return fmt::format("its main thread is at {}", to_text(*place));
  return report.kernel.empty() ? "the stack of its main thread is not known"
                               : fmt::format("its main thread is in {}", report.kernel);
}

std::string doing(HangClass kind, const RankReport& report, std::string_view awaited) {
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
      return start_text(report);
    case HangClass::order:
      return order_text(report, awaited);
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

bool is_elsewhere(const RankReport& report) { return !report.is_reached && report.host.empty(); }

Culprit clearest(const std::vector<const RankReport*>& missing, std::string_view awaited) {
  std::pair best(true, HangClass::elsewhere);
  const RankReport* explained = nullptr;
  for (const RankReport* const report : missing) {
    const std::pair one(is_elsewhere(*report), class_of(*report, awaited));
    if (explained == nullptr || one < best) std::tie(best, explained) = std::pair(one, report);
  }
  return {best.second, explained};
}

bool is_meant(HangClass kind, const RankReport& missing) {
  return kind == HangClass::unreachable ? !missing.is_reached : !is_elsewhere(missing);
}

std::string_view has_or_have(size_t ranks) { return ranks == 1 ? "has" : "have"; }

std::string one_of(size_t ranks, const RankReport& culprit) {
  return ranks == 1 ? "" : fmt::format("rank {}: ", culprit.rank);
}

}  // namespace hvd::launcher
