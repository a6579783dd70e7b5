#include "launcher/dump/rank_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1e3; }

/// Cuts a number that cannot be a time.
milliseconds time_of(const Json& json) {
  constexpr double kMost = 1e15;
  return milliseconds(static_cast<int64_t>(std::clamp(json.get<double>() * 1e3, 0.0, kMost) + 0.5));
}

std::vector<int32_t> ranks_of(const Json& json) {
  std::vector<int32_t> ranks;
  for (const Json& rank : json) ranks.push_back(static_cast<int32_t>(integer_of(rank)));
  return ranks;
}

/// Parses `  File "<file>", line <line> in <function>`.
std::optional<Frame> parse_frame(std::string_view line) {
  constexpr std::string_view kFile = "  File \"", kLine = "\", line ", kFunction = " in ";
  const size_t line_at = line.rfind(kLine);
  if (!line.starts_with(kFile) || line_at == std::string_view::npos) return std::nullopt;
  Frame frame{.file = std::string(line.substr(kFile.size(), line_at - kFile.size()))};
  std::string_view rest = line.substr(line_at + kLine.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), frame.line);
  const size_t function_at = rest.find(kFunction);
  if (function_at != std::string_view::npos)
    frame.function = rest.substr(function_at + kFunction.size());
  return frame;
}

bool is_of_library(const std::string& file) {
  return file.starts_with('<') || file.find("/site-packages/") != std::string::npos ||
         file.find("/dist-packages/") != std::string::npos ||
         file.find("/lib/python3") != std::string::npos;
}

Json json_of(const std::vector<Frame>& stack) {
  Json json = Json::array();
  for (const Frame& frame : stack)
    json.push_back({{"file", frame.file},
                    {"line", frame.line},
                    {"function", frame.function},
                    {"source", frame.source}});
  return json;
}

std::vector<Frame> stack_of(const Json& json) {
  std::vector<Frame> stack;
  for (const Json& frame : json)
    stack.push_back({frame.at("file"), static_cast<int>(integer_of(frame.at("line"))),
                     frame.at("function"), frame.at("source")});
  return stack;
}

Json json_of(const PendingOperation& one) {
  return {{"name", one.name},        {"what", one.what},
          {"ranks", one.between},    {"seconds", seconds(one.age)},
          {"agreed", one.is_agreed}, {"call", one.is_call}};
}

PendingOperation pending_of(const Json& json) {
  return {.name = json.at("name"),
          .what = json.at("what"),
          .between = ranks_of(json.at("ranks")),
          .age = time_of(json.at("seconds")),
          .is_agreed = json.at("agreed"),
          .is_call = json.at("call")};
}

Json json_of(const BoardState& state) {
  Json pending = Json::array(), last = Json::array(), silent = Json::array();
  for (const PendingOperation& one : state.pending) pending.push_back(json_of(one));
  for (const PastOperation& one : state.last)
    last.push_back({{"name", one.name}, {"what", one.what}, {"seconds", seconds(one.age)}});
  for (const SilentPeer& one : state.silent)
    silent.push_back({{"rank", one.rank}, {"seconds", seconds(one.silence)}});
  return {{"rank", state.rank},
          {"size", state.size},
          {"generation", state.generation},
          {"step", state.step},
          {"batches", state.batches},
          {"joined", state.has_joined},
          {"ended", state.has_ended},
          {"pending", std::move(pending)},
          {"more_pending", state.more_pending},
          {"submitted_last", std::move(last)},
          {"last_failure", state.last_failure},
          {"since_failure", seconds(state.since_failure)},
          {"silent", std::move(silent)}};
}

BoardState state_of(const Json& json) {
  BoardState state{.rank = static_cast<int32_t>(integer_of(json.at("rank"))),
                   .size = static_cast<int32_t>(integer_of(json.at("size"))),
                   .generation = static_cast<uint32_t>(integer_of(json.at("generation"))),
                   .step = static_cast<uint64_t>(integer_of(json.at("step"))),
                   .batches = static_cast<uint64_t>(integer_of(json.at("batches"))),
                   .has_joined = json.at("joined"),
                   .has_ended = json.at("ended")};
  for (const Json& one : json.at("pending")) state.pending.push_back(pending_of(one));
  state.more_pending = static_cast<uint64_t>(integer_of(json.at("more_pending")));
  for (const Json& one : json.at("submitted_last"))
    state.last.push_back({one.at("name"), one.at("what"), time_of(one.at("seconds"))});
  state.last_failure = json.at("last_failure");
  state.since_failure = time_of(json.at("since_failure"));
  for (const Json& one : json.at("silent"))
    state.silent.push_back(
        {static_cast<int32_t>(integer_of(one.at("rank"))), time_of(one.at("seconds"))});
  return state;
}

/// In JSON, in the order of RankStage.
constexpr std::string_view kStageNames[kStages] = {
    "before_init", "in_init",        "init_failed",     "running", "failed",
    "in_shutdown", "after_shutdown", "next_generation", "over"};

RankStage stage_of(const Json& json) {
  const auto found = std::ranges::find(kStageNames, json.get_ref<const std::string&>());
  return found == std::end(kStageNames) ? RankStage::before_init
                                        : static_cast<RankStage>(found - std::begin(kStageNames));
}

}  // namespace

std::vector<WrittenStack> parse_stacks(std::string_view text) {
  std::vector<WrittenStack> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("main gil ") || line.starts_with("other gil "))
      found.push_back({.is_main = line.starts_with('m'), .holds_gil = line.ends_with('1')});
    if (auto frame = parse_frame(line); frame && !found.empty())
      found.back().frames.push_back(*std::move(frame));
  }
  return found;
}

const Frame* place_in(const std::vector<Frame>& stack) {
  if (stack.empty()) return nullptr;
  const auto own =
      std::ranges::find_if(stack, [](const Frame& frame) { return !is_of_library(frame.file); });
  return own == stack.end() ? &stack.front() : &*own;
}

std::string to_text(const Frame& frame) {
  const std::string name = frame.file.substr(frame.file.rfind('/') + 1);
  return fmt::format("{}:{} in {}", name, frame.line, frame.function);
}

int64_t integer_of(const Json& json) { return json.get_ref<const Json::number_integer_t&>(); }

Json to_json(const RankReport& report) {
  return {{"rank", report.rank},
          {"host", report.host},
          {"worker", report.worker},
          {"process", report.process},
          {"run_state", std::string(1, report.run_state)},
          {"outlives_main_thread", report.outlives_main},
          {"kernel", report.kernel},
          {"reached", report.is_reached},
          {"board", report.has_board},
          {"stage", kStageNames[static_cast<size_t>(report.stage)]},
          {"stage_seconds", seconds(report.stage_age)},
          {"answers", report.answers},
          {"holds_gil", report.holds_gil},
          {"state", report.state ? json_of(*report.state) : Json(nullptr)},
          {"stack", json_of(report.stack)},
          {"gil_holder", json_of(report.gil_holder)}};
}

RankReport report_from_json(const Json& json) {
  RankReport report{.rank = static_cast<int>(integer_of(json.at("rank"))),
                    .host = json.at("host"),
                    .worker = json.at("worker"),
                    .process = static_cast<int>(integer_of(json.at("process"))),
                    .run_state = json.at("run_state").get<std::string>().at(0),
                    .outlives_main = json.at("outlives_main_thread"),
                    .kernel = json.at("kernel"),
                    .is_reached = json.at("reached"),
                    .has_board = json.at("board"),
                    .stage = stage_of(json.at("stage")),
                    .stage_age = time_of(json.at("stage_seconds")),
                    .answers = json.at("answers"),
                    .holds_gil = json.at("holds_gil")};
  if (!json.at("state").is_null()) report.state = state_of(json.at("state"));
  report.stack = stack_of(json.at("stack"));
  report.gil_holder = stack_of(json.at("gil_holder"));
  return report;
}

}  // namespace hvd::launcher
