// The processes above this one: the launcher is among them, and what it has loaded, or where it is
// installed, tells what fits to it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd {

/// The nearest first: shells and wrappers, and the daemon of a launcher above them. Not the first
/// process of the machine, none that may not be looked at, and none of another user but root.
std::vector<pid_t> ancestors();

/// The program that a process runs; empty where that may not be looked at.
std::string program_of(pid_t process);

}  // namespace hvd
