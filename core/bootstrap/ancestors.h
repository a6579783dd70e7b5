// The ancestors of this process. The launcher is among them; the libraries it has loaded and the
// folder it is installed in show which ones match it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd {

/// Up to 8, nearest first. Leaves out process 1, those that may not be inspected, and those of
/// other users than this one and root.
std::vector<pid_t> ancestors();

/// The path of the program that a process runs; empty if it may not be inspected.
std::string program_of(pid_t process);

}  // namespace hvd
