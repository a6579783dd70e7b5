// Finds the cause of a hang in what the ranks of a job told. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

/// Why a job does not go on. `none`: nothing has waited for kHangAge.
enum class HangClass : uint8_t {
  none,
  stopped,      ///< by a signal or a debugger
  ended,        ///< the process of the rank has ended
  unreachable,  ///< its host does not answer
  partition,    ///< its host answers, but not the host of another rank
  order,        ///< it waits for another operation: a branch, another order, a skipped step
  gil,          ///< it is blocked in C code and holds the GIL
  data,         ///< in a data loader
  io,           ///< it waits for a file system, a device, a pipe or a socket
  lock,         ///< it waits for a lock, a thread, or a process
  busy,         ///< it computes
  failed,       ///< it runs on after an operation that failed
  start,        ///< it has not called hvd.init()
  transfer,     ///< an operation that all ranks have submitted does not end
  slots,        ///< an elastic job waits for more workers
  no_answer,    ///< its main thread does not take signals
  elsewhere,    ///< it does something else; its stack shows what
};
std::string_view name_of(HangClass kind);

/// Operations that have waited for less are normal.
inline constexpr std::chrono::milliseconds kHangAge{1000};

struct Cause {
  HangClass kind = HangClass::none;
  std::string text{};  ///< one line
  /// That the others wait for; empty: none. Between operations: "hvd.init()", "hvd.shutdown()",
  /// "the next generation", "the end".
  std::string operation{};
  std::vector<int> ranks{};            ///< that the others wait for
  std::vector<std::string> workers{};  ///< the same without ranks, see RankReport::worker
};

/// `reports`: of all ranks of the job, ascending, also of those that did not answer.
Cause explain(const std::vector<RankReport>& reports);

/// An operation or call that some ranks have submitted and others have not, or that does not end.
struct Waited {
  std::string name{};
  std::string what{};
  bool is_call = false;  ///< see PendingOperation
  std::vector<int> submitted{};
  std::vector<int> missing{};  ///< empty: all ranks have submitted it
  std::chrono::milliseconds age{};
};
/// The most important first.
std::vector<Waited> waited_for(const std::vector<RankReport>& reports);

/// "rank 3", "ranks 0-2, 5".
std::string ranks_text(const std::vector<int>& ranks);
/// "0.4 s", "12 s".
std::string time_text(std::chrono::milliseconds time);

}  // namespace hvd::launcher
