// Lets a child process do what may block for ever, such as reading from a file system that does not
// answer. For processes with one thread that end soon: a child that cannot be killed is left.
#pragma once

#include <functional>
#include <string>

#include "core/base/clock.h"

namespace hvd::launcher {

/// Returns what `work` writes to its standard output until it ends, or until the deadline, but not
/// more than some MiB. Its standard error goes nowhere. Empty if no process can be made.
std::string output_of(const std::function<void()>& work, TimePoint deadline);

}  // namespace hvd::launcher
