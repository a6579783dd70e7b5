// The code that runs in the supervisor's process, from the fork on.
#pragma once

#include "launcher/process/supervisor.h"

namespace hvd::launcher {

/// `socket`: the connection to the process that started it.
[[noreturn]] void run_supervisor(const SupervisorSetup& setup, int socket);

}  // namespace hvd::launcher
