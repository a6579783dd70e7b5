// Asks the ranks below a supervisor on this host where they are: reads /proc, sends each rank the
// signal of its board (core/transport/rank_board.h), and reads what it writes. Needs the rights of
// the user who owns the processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

#include "launcher/dump/rank_report.h"
#include "launcher/worker/question.h"

namespace hvd::launcher {

/// How long ranks may take to answer. A main thread that is not blocked answers in a millisecond.
inline constexpr std::chrono::milliseconds kAnswerTime{800};

/// Whether this process itself has called hvd.init(), not only its parent.
bool has_called_init(pid_t process);

/// Returns one report per worker of the supervisor, ascending by rank. Blocks for at most about a
/// second more than `patience`, also if a file system does not answer. A signal is sent only to a
/// process that handles it. For a process with one thread that ends soon (aside.h).
std::vector<RankReport> collect_below(pid_t supervisor, std::chrono::milliseconds patience,
                                      Question question = Question::everything);

}  // namespace hvd::launcher
