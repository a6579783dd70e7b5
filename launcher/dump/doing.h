// What a rank does for which others wait, in a word and in a sentence. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/dump/explain.h"
#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

inline constexpr std::string_view kJoin = "join";  ///< no other rank need submit it soon

/// The same, as an operation that they wait for, see awaited_join() in explain.cc.
inline constexpr std::string_view kJoinCall = "hvd.join()";

/// Where all ranks meet outside of operations, as an operation that they wait for.
inline constexpr std::string_view kInit = "hvd.init()", kShutdown = "hvd.shutdown()",
                                  kNextGeneration = "the next generation";
/// That a rank in this stage waits in; empty: none.
std::string_view meeting_at(RankStage stage);

/// "rank 3", or "the worker without a rank in slot 2 of b".
std::string subject_of(const RankReport& report);
/// `awaited`: what the others wait for, an operation or a meeting.
HangClass class_of(const RankReport& report, std::string_view awaited);
/// "its main thread is at train.py:30 in step".
std::string doing(HangClass kind, const RankReport& report, std::string_view awaited);
std::string main_thread_at(const RankReport& report);

/// Another launcher has started it on another host, where no process asks.
bool is_elsewhere(const RankReport& report);

/// The rank with the clearest reason, of several for which others wait.
struct Culprit {
  HangClass kind = HangClass::elsewhere;
  const RankReport* report = nullptr;  ///< nullptr: there are none
};
Culprit clearest(const std::vector<const RankReport*>& missing, std::string_view awaited);
/// Whether a cause of this class names a rank that is missing. Those that another launcher has
/// started elsewhere are named only if none is known better.
bool is_meant(HangClass kind, const RankReport& missing);

/// "has" or "have", of so many ranks.
std::string_view has_or_have(size_t ranks);
/// "rank 3: ", if the culprit is one of several.
std::string one_of(size_t ranks, const RankReport& culprit);

}  // namespace hvd::launcher
