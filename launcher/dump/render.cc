#include "launcher/dump/render.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <tuple>

#include "launcher/dump/doing.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kOperationsShown = 20;
constexpr size_t kCulpritsShown = 4;
constexpr size_t kLastShown = 4;
constexpr size_t kPendingShown = 10;

std::string operation_lines(const std::vector<Waited>& operations) {
  if (operations.empty()) return "";
  std::string text = "\nPending operations:\n";
  for (const Waited& one : operations) {
    if (&one == operations.data() + kOperationsShown)
      return text + fmt::format("  and {} more\n", operations.size() - kOperationsShown);
    text += fmt::format("  {} ({}), {}: ", one.name, one.what, time_text(one.age));
    text += one.missing.empty() ? fmt::format("in progress on {}\n", ranks_text(one.submitted))
                                : fmt::format("submitted by {}, not by {}\n",
                                              ranks_text(one.submitted), ranks_text(one.missing));
  }
  return text;
}

/// The latest first. An operation that was submitted several times in a row is one, the latest.
std::string last_text(const std::vector<PastOperation>& last) {
  std::string text;
  size_t shown = 0;
  for (auto one = last.begin(); one != last.end() && shown < kLastShown; ++shown) {
    const auto next = std::find_if(one, last.end(), [&](const PastOperation& other) {
      return std::tie(other.name, other.what) != std::tie(one->name, one->what);
    });
    const std::string times = next - one > 1 ? fmt::format(", {} times", next - one) : "";
    text += fmt::format("{}{} ({}{}) {} ago", shown == 0 ? "" : ", ", one->name, one->what, times,
                        time_text(one->age));
    one = next;
  }
  return text;
}

std::string state_lines(const BoardState& state) {
  std::string text = fmt::format("  generation {}, step {}, {} batches{}{}\n", state.generation,
                                 state.step, state.batches, state.has_joined ? ", joined" : "",
                                 state.has_ended ? ", the job has ended here" : "");
  for (size_t i = 0; i < std::min(state.pending.size(), kPendingShown); ++i) {
    const PendingOperation& one = state.pending[i];
    text += fmt::format("  pending: {} ({}), {}{}\n", one.name, one.what, time_text(one.age),
                        one.is_agreed ? ", in progress" : "");
  }
  for (const SilentPeer& one : state.silent)
    text +=
        fmt::format("  has heard nothing from rank {} for {}\n", one.rank, time_text(one.silence));
  const size_t more = state.pending.size() - std::min(state.pending.size(), kPendingShown);
  if (more + state.more_pending > 0)
    text += fmt::format("  and {} more pending\n", more + state.more_pending);
  const std::string last = last_text(state.last);
  text += last.empty() ? "  nothing was submitted\n" : fmt::format("  submitted last: {}\n", last);
  if (!state.last_failure.empty())
    text +=
        fmt::format("  failed {} ago: {}\n", time_text(state.since_failure), state.last_failure);
  return text;
}

std::string process_text(const RankReport& report) {
  if (!report.is_reached) return "which cannot be reached";
  if (report.has_ended()) return "its process has ended";
  std::string text = fmt::format("process {}", report.process);
  if (!report.has_board) text += ", has not imported horovod";
  if (report.is_stopped()) return text + ", stopped";
  if (report.outlives_main) return text + ", its main thread has ended";
  if (report.has_board && !report.answers)
    text += fmt::format(", its main thread does not take signals (state {})", report.run_state);
  return text;
}

/// Between operations.
std::string stage_line(const RankReport& report) {
  if (!report.has_board) return "";
  const std::string age = time_text(report.stage_age);
  switch (report.stage) {
    case RankStage::before_init:
      return fmt::format("  has not called hvd.init() yet, for {}\n", age);
    case RankStage::in_init:
    case RankStage::in_shutdown:
      return fmt::format("  in {} for {}\n", meeting_at(report.stage), age);
    case RankStage::next_generation:
      return fmt::format("  has asked for its place in {} {} ago\n", kNextGeneration, age);
    case RankStage::init_failed:
      return fmt::format("  hvd.init() failed {} ago\n", age);
    case RankStage::failed:
      return fmt::format("  an error ended its generation {} ago\n", age);
    case RankStage::after_shutdown:
      return fmt::format("  has called hvd.shutdown() {} ago\n", age);
    case RankStage::over:
      return fmt::format("  hvd.shutdown() of another rank ended the job here {} ago\n", age);
    case RankStage::running:
      break;
  }
  return "";
}

/// Python's own import system, of which a nested import has many frames.
bool is_of_importlib(const Frame& frame) { return frame.file.starts_with("<frozen importlib"); }

std::string text_of(const Frame& frame) {
  std::string text =
      fmt::format("    File \"{}\", line {}, in {}\n", frame.file, frame.line, frame.function);
  if (!frame.source.empty()) text += fmt::format("      {}\n", frame.source);
  return text;
}

std::string frame_lines(std::string_view thread, const std::vector<Frame>& stack) {
  if (stack.empty()) return "";
  std::string text = fmt::format("  {} (most recent call first):\n", thread);
  for (auto frame = stack.begin(); frame != stack.end();) {
    const auto next = std::find_if_not(frame, stack.end(), is_of_importlib);
    const auto folded = next - frame;
    text += folded > 1 ? fmt::format("    {} frames of importlib\n", folded) : text_of(*frame);
    frame += std::max<std::ptrdiff_t>(folded, 1);
  }
  return text;
}

std::string stack_lines(const RankReport& report) {
  std::string text;
  if (!report.kernel.empty()) text += fmt::format("  its main thread waits in {}\n", report.kernel);
  if (report.holds_gil) text += "  its main thread holds the GIL\n";
  text +=
      frame_lines(report.answers ? "main thread" : "main thread, as py-spy sees it", report.stack);
  return text + frame_lines("another thread, which holds the GIL", report.gil_holder);
}

std::string rank_lines(const RankReport& report) {
  const std::string on = report.host.empty() || report.rank < 0 ? "" : " on " + report.host;
  std::string who = subject_of(report);
  who.front() = static_cast<char>(std::toupper(who.front()));
  std::string text = fmt::format("\n{}{}, {}\n", who, on, process_text(report));
  text += stage_line(report);
  if (report.state) text += state_lines(*report.state);
  return text + stack_lines(report);
}

bool is_named(const Cause& cause, const RankReport& report) {
  return report.rank >= 0 ? std::ranges::find(cause.ranks, report.rank) != cause.ranks.end()
                          : std::ranges::find(cause.workers, report.worker) != cause.workers.end();
}

}  // namespace

std::string dump_text(const std::vector<RankReport>& reports,
                      const std::vector<std::string>& remarks) {
  std::string text = explain(reports).text + "\n";
  for (const std::string& remark : remarks) text += remark + "\n";
  text += operation_lines(waited_for(reports));
  for (const RankReport& report : reports) text += rank_lines(report);
  return text;
}

std::string cause_text(const std::vector<RankReport>& reports) {
  const Cause cause = explain(reports);
  if (cause.kind == HangClass::none) return "";
  std::string text = cause.text + "\n";
  size_t shown = 0;
  for (const RankReport& report : reports)
    if (is_named(cause, report) && shown++ < kCulpritsShown)
      text += rank_lines(report).substr(1);  // without the empty line before
  return text;
}

std::string dump_json(const std::vector<RankReport>& reports,
                      const std::vector<std::string>& remarks) {
  const Cause cause = explain(reports);
  Json operations = Json::array(), ranks = Json::array();
  for (const Waited& one : waited_for(reports))
    operations.push_back({{"name", one.name},
                          {"what", one.what},
                          {"seconds", static_cast<double>(one.age.count()) / 1e3},
                          {"submitted", one.submitted},
                          {"missing", one.missing}});
  for (const RankReport& report : reports) ranks.push_back(to_json(report));
  const Json all = {{"cause",
                     {{"text", cause.text},
                      {"class", name_of(cause.kind)},
                      {"operation", cause.operation},
                      {"ranks", cause.ranks},
                      {"workers", cause.workers}}},
                    {"operations", std::move(operations)},
                    {"ranks", std::move(ranks)},
                    {"remarks", remarks}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
