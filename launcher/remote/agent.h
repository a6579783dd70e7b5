// horovodrun on another host (`horovodrun --agent`, started by ssh). It checks that the job can run
// there, starts and signals the workers of its host below a supervisor, and forwards their output
// and exits. On request it starts agents on further hosts and relays between them and the launcher.
// It makes no decisions. When its standard input ends, or the launcher's host is lost, its workers
// and the agents below it end. Workers have `--grace-seconds` to raise the error of a lost rank.
#pragma once

namespace hvd::launcher {

/// Returns the exit code. Throws Error if the launcher sends invalid frames.
int run_agent();

}  // namespace hvd::launcher
