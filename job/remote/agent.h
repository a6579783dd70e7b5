// What horovodrun is on another host (`horovodrun --agent`, started by ssh): it makes sure that the
// job can run there, starts the ranks of this host below a supervisor when it is told to, and
// passes on what they write and how they end. It starts agents on further hosts when it is told to,
// and stands between them and the launcher. It decides nothing. When its standard input ends, or
// the launcher's host is gone, so are the ranks, and the agents below.
#pragma once

namespace hvd::job {

/// Returns the exit code. Throws Error where the launcher makes no sense.
int run_agent();

}  // namespace hvd::job
