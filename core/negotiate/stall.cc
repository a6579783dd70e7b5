#include "core/negotiate/stall.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

namespace hvd {
namespace {

constexpr size_t kNamesInLine = 6;
constexpr size_t kOperationsInReport = 20;
constexpr uint32_t kStalledTicks = 2;  // two ticks span at least one whole period

using Ranks = std::set<int32_t>;
struct OperationKey {
  GroupNumber group;
  std::string name;
  std::vector<int32_t> between;  ///< message: its ranks
  auto operator<=>(const OperationKey&) const = default;
};

/// An operation that only some ranks have submitted, unless `is_behind`.
struct Stalled {
  uint32_t age_ticks = 0;
  uint32_t expired_ms = 0;  ///< its timeout, if that has expired
  Ranks submitted;
  Ranks missing;
  Ranks unknown;  ///< silent, or with more waiting names than a report holds
  /// Some of `missing` may have submitted it: it is not known which.
  bool is_unsure = false;
  /// All its ranks have submitted it: it waits behind a batch that `missing` (silent ranks) have
  /// not finished.
  bool is_behind = false;
};
using Operations = std::map<OperationKey, Stalled>;
using NamedOperation = Operations::value_type;

std::chrono::seconds age(const Stalled& operation, const StallFacts& facts) {
  return facts.tick * (operation.age_ticks - 1);
}

/// A timeout limits only how long an operation waits for ranks to submit it.
bool has_expired(const Stalled& operation) {
  return operation.expired_ms > 0 && !operation.is_behind;
}

bool is_overdue(const Stalled& operation, const StallFacts& facts) {
  if (has_expired(operation)) return true;
  return facts.shutdown.count() > 0 && age(operation, facts) >= facts.shutdown;
}

bool waits_for(const Waiting& waiting, const OperationKey& key) {
  return std::any_of(waiting.names.begin(), waiting.names.end(), [&](const WaitingName& name) {
    return name.group == key.group && name.name == key.name && name.between == key.between;
  });
}

/// Whether `rank` takes part in the operation.
bool takes_part(int32_t rank, const OperationKey& key, const StallFacts& facts) {
  const auto in = [rank](const std::vector<int32_t>& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  };
  if (!key.between.empty()) return in(key.between);
  if (key.group == kWorldGroup) return true;
  const auto set = facts.process_sets.find(key.group);
  return set != facts.process_sets.end() && in(set->second);
}

/// Returns the set of `operation` to which the ranks of one class belong; nullptr for joined ranks,
/// which no rank waits for.
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
      if (takes_part(rank, key, facts)) place->insert(rank);
    }
  }
  // Some rank has not submitted it: if none is known, then one of the unknown ranks.
  if (operation.missing.empty()) {
    operation.missing.swap(operation.unknown);
    operation.is_unsure = operation.missing.size() > 1;
  }
  const bool is_message = !key.between.empty();  // waits for no batch
  if (!operation.missing.empty() || is_message) return;
  operation.missing = silent_ranks(report);
  operation.is_behind = true;
}

Operations stalled_operations(const StallReport& report, const StallFacts& facts) {
  Operations operations;
  for (const auto& [waiting, ranks] : report) {
    for (const WaitingName& name : waiting.names) {
      Stalled& operation = operations[{name.group, name.name, name.between}];
      operation.age_ticks = std::max(operation.age_ticks, name.age_ticks);
      operation.expired_ms = std::max(operation.expired_ms, name.expired_ms);
    }
  }
  std::erase_if(operations, [](const auto& entry) {
    return entry.second.age_ticks < kStalledTicks && entry.second.expired_ms == 0;
  });
  for (auto& [key, operation] : operations) place_ranks(report, facts, key, operation);
  std::erase_if(operations, [](const auto& entry) {
    const Stalled& operation = entry.second;
    return operation.missing.empty() ||
           (operation.is_behind && operation.age_ticks < kStalledTicks);
  });
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

/// Those that end the job first: not all fit into the report.
std::vector<const NamedOperation*> by_weight(const Operations& operations,
                                             const StallFacts& facts) {
  std::vector<const NamedOperation*> entries;
  for (const NamedOperation& entry : operations) entries.push_back(&entry);
  std::ranges::stable_partition(
      entries, [&](const NamedOperation* entry) { return is_overdue(entry->second, facts); });
  return entries;
}

std::map<int32_t, MissingRank> missing_ranks(const Operations& operations,
                                             const StallFacts& facts) {
  std::map<int32_t, MissingRank> missing;
  for (const NamedOperation* const entry : by_weight(operations, facts)) {
    const auto& [key, operation] = *entry;
    for (const int32_t rank : operation.missing) {
      missing[rank].names.push_back(key.name);
      missing[rank].is_overdue |= is_overdue(operation, facts);
    }
  }
  return missing;
}

std::string wait_text(const Stalled& operation, const StallFacts& facts) {
  if (has_expired(operation)) return fmt::format("{:g} s, its timeout", operation.expired_ms / 1e3);
  return fmt::format("{} s or more", age(operation, facts).count());
}

std::string missing_text(const Stalled& operation) {
  const std::string ranks = ranks_text(operation.missing);
  if (operation.is_behind) return "but behind a batch that waits for " + ranks;
  return (operation.is_unsure ? "not by one or more of " : "not by ") + ranks;
}

std::string operation_lines(const Operations& operations, const StallFacts& facts) {
  std::string text;
  size_t left = kOperationsInReport;
  for (const NamedOperation* const entry : by_weight(operations, facts)) {
    if (left-- == 0) {
      return text +
             fmt::format("and {} more operations\n", operations.size() - kOperationsInReport);
    }
    const auto& [key, operation] = *entry;
    text += fmt::format("{} has waited for {}: submitted by {}, {}\n", key.name,
                        wait_text(operation, facts), ranks_text(operation.submitted),
                        missing_text(operation));
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

/// Describes what the missing ranks do instead; ranks with the same state share a line.
std::string rank_lines(const StallReport& report, const std::map<int32_t, MissingRank>& missing) {
  std::map<int32_t, std::string> lines;  // by the lowest rank
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

/// "ranks 1, 2": those that certainly have not submitted what is overdue, if any are certain.
std::string culprits_text(const Operations& operations, const StallFacts& facts) {
  Ranks certain, possible;
  for (const auto& [key, operation] : operations) {
    if (!is_overdue(operation, facts)) continue;
    Ranks& culprits = operation.is_unsure ? possible : certain;
    culprits.insert(operation.missing.begin(), operation.missing.end());
  }
  return certain.empty() ? "one or more of " + ranks_text(possible) : ranks_text(certain);
}

std::string error_text(const Operations& operations, const StallFacts& facts) {
  const bool any_expired =
      std::ranges::any_of(operations, [](const auto& entry) { return has_expired(entry.second); });
  const std::string limit =
      any_expired ? "their timeout" : fmt::format("the limit of {} s", facts.shutdown.count());
  return fmt::format(
      "{} did not submit operations that other ranks have waited for longer than {}, so the job is "
      "shut down.\n",
      culprits_text(operations, facts), limit);
}

}  // namespace

std::string describe_stall(const StallReport& report, const StallFacts& facts) {
  const Operations operations = stalled_operations(report, facts);
  if (operations.empty()) return "";
  const std::map<int32_t, MissingRank> missing = missing_ranks(operations, facts);
  bool ends_job = false;
  std::string lines;
  for (const auto& [rank, what] : missing) {
    ends_job |= what.is_overdue;
    lines += fmt::format("{}{}: {}\n", rank, what.is_overdue ? "!" : "", names_text(what.names));
  }
  lines += operation_lines(operations, facts) + rank_lines(report, missing);
  lines.pop_back();  // the log adds the line end
  const std::string what = ends_job ? error_text(operations, facts) : warning_text(facts);
  return what + "Missing ranks:\n" + lines;
}

bool stall_ends_job(const StallReport& report, const StallFacts& facts) {
  const Operations operations = stalled_operations(report, facts);
  return std::any_of(operations.begin(), operations.end(),
                     [&](const auto& entry) { return is_overdue(entry.second, facts); });
}

}  // namespace hvd
