#include "core/bootstrap/launchers/slurm_variables.h"

#include <fmt/core.h>

#include <charconv>

#include "core/base/error.h"

namespace hvd {
namespace {

constexpr const char* kTasksPerNode = "SLURM_STEP_TASKS_PER_NODE";
constexpr int kMaxCount = 1 << 24;

/// Removes a number from the front; nothing if there is none.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1 || value > kMaxCount) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

}  // namespace

std::vector<int> expand_counts(const std::string& name, const std::string& text) {
  const auto refuse = [&] {
    fail(Code::invalid_argument,
         fmt::format("{}={} is not a list of counts like 3(x2),1", name, text));
  };
  std::vector<int> counts;
  std::string_view rest = text;
  do {
    const auto count = take_number(rest);
    std::optional<int> times = 1;
    if (take(rest, "(x")) {
      times = take_number(rest);
      if (!take(rest, ")")) refuse();
    }
    if (!count || !times || counts.size() + static_cast<size_t>(*times) > kMaxCount) refuse();
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  } while (take(rest, ","));
  if (!rest.empty()) refuse();
  return counts;
}

std::string first_of_node_list(const std::string& name, const std::string& text) {
  std::string node = text.substr(0, text.find_first_of(",["));
  const size_t open = text.find('[');
  if (open == node.size()) {  // followed by its number
    const size_t end = text.find_first_of(",-]", open);
    const size_t close = text.find(']', open);
    if (end == std::string::npos || close == std::string::npos) node.clear();
    if (!node.empty()) {
      node += text.substr(open + 1, end - open - 1);
      node += text.substr(close + 1, text.find(',', close) - close - 1);
    }
  }
  if (node.empty())
    fail(Code::invalid_argument, fmt::format("{}={} is not a list of nodes", name, text));
  return node;
}

std::optional<RankAndSize> slurm_local_rank(const Environment& environment) {
  const auto tasks = variable(environment, kTasksPerNode);
  const auto node = number_variable(environment, "SLURM_NODEID", 0, kMaxCount);
  const auto local = number_variable(environment, "SLURM_LOCALID", 0, kMaxCount);
  if (!tasks || !node || !local) return std::nullopt;
  const std::vector<int> counts = expand_counts(kTasksPerNode, *tasks);
  if (static_cast<size_t>(*node) >= counts.size() || *local >= counts[static_cast<size_t>(*node)]) {
    fail(Code::invalid_argument,
         fmt::format("SLURM_LOCALID={} on SLURM_NODEID={} does not fit {}={}", *local, *node,
                     kTasksPerNode, *tasks));
  }
  return RankAndSize{static_cast<int>(*local), counts[static_cast<size_t>(*node)]};
}

}  // namespace hvd
