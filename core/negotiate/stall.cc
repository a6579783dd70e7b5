#include "core/negotiate/stall.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

namespace hvd {
namespace {

constexpr size_t kNamesInLine = 6;
constexpr size_t kOperationsInReport = 20;
constexpr uint32_t kStalledTicks = 2;  // a tick survived twice is at least one whole period

using Ranks = std::set<int32_t>;
using OperationKey = std::pair<GroupNumber, std::string>;

/// An operation that some ranks have submitted and others have not.
struct Stalled {
  uint32_t age_ticks = 0;
  Ranks submitted;
  Ranks missing;
  Ranks unknown;  ///< silent, or with more waiting than they could tell
  /// All its ranks have submitted it: it waits behind a batch that `missing`, which are silent,
  /// have not finished.
  bool is_behind = false;
};
using Operations = std::map<OperationKey, Stalled>;

std::chrono::seconds age(const Stalled& operation, const StallFacts& facts) {
  return facts.tick * (operation.age_ticks - 1);
}

bool is_overdue(const Stalled& operation, const StallFacts& facts) {
  return facts.shutdown.count() > 0 && age(operation, facts) >= facts.shutdown;
}

bool waits_for(const Waiting& waiting, const OperationKey& key) {
  return std::any_of(waiting.names.begin(), waiting.names.end(), [&](const WaitingName& name) {
    return name.group == key.first && name.name == key.second;
  });
}

bool is_member(int32_t rank, GroupNumber group, const StallFacts& facts) {
  if (group == kWorldGroup) return true;
  const auto set = facts.process_sets.find(group);
  return set != facts.process_sets.end() &&
         std::find(set->second.begin(), set->second.end(), rank) != set->second.end();
}

/// Where the ranks of one class stand with an operation; nullptr for joined ranks, which nobody
/// waits for.
Ranks* place_of(const Waiting& waiting, const OperationKey& key, Stalled& operation) {
  if (waiting.silent) return &operation.unknown;
  if (waits_for(waiting, key)) return &operation.submitted;
  if (waiting.joined) return nullptr;
  return waiting.more > 0 ? &operation.unknown : &operation.missing;
}

Ranks silent_ranks(const StallReport& report) {
  Ranks silent;
  for (const auto& [waiting, ranks] : report) {
    if (waiting.silent) silent.insert(ranks.begin(), ranks.end());
  }
  return silent;
}

void place_ranks(const StallReport& report, const StallFacts& facts, const OperationKey& key,
                 Stalled& operation) {
  for (const auto& [waiting, ranks] : report) {
    Ranks* place = place_of(waiting, key, operation);
    if (place == nullptr) continue;
    for (const int32_t rank : ranks) {
      if (is_member(rank, key.first, facts)) place->insert(rank);
    }
  }
  // Somebody misses it: when nobody is known to, then those who could not say.
  if (operation.missing.empty()) operation.missing.swap(operation.unknown);
  if (!operation.missing.empty()) return;
  operation.missing = silent_ranks(report);
  operation.is_behind = true;
}

Operations stalled_operations(const StallReport& report, const StallFacts& facts) {
  Operations operations;
  for (const auto& [waiting, ranks] : report) {
    for (const WaitingName& name : waiting.names) {
      uint32_t& age_ticks = operations[{name.group, name.name}].age_ticks;
      age_ticks = std::max(age_ticks, name.age_ticks);
    }
  }
  std::erase_if(operations,
                [](const auto& entry) { return entry.second.age_ticks < kStalledTicks; });
  for (auto& [key, operation] : operations) place_ranks(report, facts, key, operation);
  std::erase_if(operations, [](const auto& entry) { return entry.second.missing.empty(); });
  return operations;
}

/// "rank 3", "ranks 0, 2-5".
std::string ranks_text(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (auto first = ranks.begin(); first != ranks.end();) {
    auto last = first;
    while (std::next(last) != ranks.end() && *std::next(last) == *last + 1) ++last;
    if (first != ranks.begin()) text += ", ";
    text += std::to_string(*first);
    if (*last > *first) text += (*last == *first + 1 ? ", " : "-") + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

template <class Names>
std::string names_text(const Names& names) {
  std::string text = "[";
  size_t count = 0;
  for (const std::string& name : names) {
    if (count == kNamesInLine) return text + " ...]";
    if (count++ > 0) text += ", ";
    text += name;
  }
  return text + "]";
}

struct MissingRank {
  std::vector<std::string> names;
  bool is_overdue = false;
};

std::map<int32_t, MissingRank> missing_ranks(const Operations& operations,
                                             const StallFacts& facts) {
  std::map<int32_t, MissingRank> missing;
  for (const auto& [key, operation] : operations) {
    for (const int32_t rank : operation.missing) {
      missing[rank].names.push_back(key.second);
      missing[rank].is_overdue |= is_overdue(operation, facts);
    }
  }
  return missing;
}

std::string operation_lines(const Operations& operations, const StallFacts& facts) {
  std::string text;
  size_t left = kOperationsInReport;
  for (const auto& [key, operation] : operations) {
    if (left-- == 0) {
      return text +
             fmt::format("and {} more operations\n", operations.size() - kOperationsInReport);
    }
    text += fmt::format("{} has waited for {} s or more: submitted by {}, {} {}\n", key.second,
                        age(operation, facts).count(), ranks_text(operation.submitted),
                        operation.is_behind ? "but behind a batch that waits for" : "not by",
                        ranks_text(operation.missing));
  }
  return text;
}

std::string instead(const Waiting& waiting) {
  std::vector<std::string> names;
  for (const WaitingName& name : waiting.names) names.push_back(name.name);
  std::string text = waiting.joined ? "joined; " : "";
  text += names.empty() ? "nothing is pending there" : "pending there: " + names_text(names);
  return text + (waiting.last.empty() ? ", nothing was ever submitted"
                                      : ", submitted last: " + waiting.last);
}

/// What the missing ranks do instead; ranks that do the same share a line.
std::string rank_lines(const StallReport& report, const std::map<int32_t, MissingRank>& missing) {
  std::map<int32_t, std::string> lines;  // by the lowest rank concerned
  for (const auto& [waiting, ranks] : report) {
    if (waiting.silent) continue;
    Ranks concerned;
    for (const int32_t rank : ranks) {
      if (missing.contains(rank)) concerned.insert(rank);
    }
    if (concerned.empty()) continue;
    lines[*concerned.begin()] = fmt::format("{}: {}\n", ranks_text(concerned), instead(waiting));
  }
  std::string text;
  for (const auto& [rank, line] : lines) text += line;
  if (const Ranks silent = silent_ranks(report); !silent.empty()) {
    text += fmt::format("no answer from {}: stopped, or not reachable\n", ranks_text(silent));
  }
  return text;
}

std::string warning_text(const StallFacts& facts) {
  return fmt::format(
      "Some ranks have waited for {} s or more for operations that others have not submitted. "
      "Ranks may have taken "
      "different branches (an operation that only some ranks call, loops of different length), or "
      "a rank may be "
      "busy or stuck elsewhere (input, a lock, a debugger).\n",
      facts.tick.count());
}

std::string error_text(const Ranks& overdue, const StallFacts& facts) {
  return fmt::format(
      "{} did not submit what others have waited for beyond the limit of {} s, so the job is shut "
      "down.\n",
      ranks_text(overdue), facts.shutdown.count());
}

}  // namespace

std::string describe_stall(const StallReport& report, const StallFacts& facts) {
  const Operations operations = stalled_operations(report, facts);
  if (operations.empty()) return "";
  const std::map<int32_t, MissingRank> missing = missing_ranks(operations, facts);
  Ranks overdue;
  std::string lines;
  for (const auto& [rank, what] : missing) {
    if (what.is_overdue) overdue.insert(rank);
    lines += fmt::format("{}{}: {}\n", rank, what.is_overdue ? "!" : "", names_text(what.names));
  }
  lines += operation_lines(operations, facts) + rank_lines(report, missing);
  lines.pop_back();  // the log ends the line
  const std::string what = overdue.empty() ? warning_text(facts) : error_text(overdue, facts);
  return what + "Missing ranks:\n" + lines;
}

bool stall_ends_job(const StallReport& report, const StallFacts& facts) {
  const Operations operations = stalled_operations(report, facts);
  return std::any_of(operations.begin(), operations.end(),
                     [&](const auto& entry) { return is_overdue(entry.second, facts); });
}

}  // namespace hvd
