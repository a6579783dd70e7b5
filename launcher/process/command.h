// Checks that the command of a job can run on this host, before it is started on any host.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::launcher {

struct FoundCommand {
  std::string program;  ///< its path; empty: not found
  std::string problem;  ///< why it would fail at once; empty: it would not
};

/// Searches the PATH of `environment`. A Python script is looked up relative to the working folder.
FoundCommand find_command(const std::vector<std::string>& command, const Environment& environment);

/// Returns PATH, or its default if it is not set.
std::string path_of(const Environment& environment);

/// Returns the interpreter that was installed with `program`, else python3 of `path`; empty if
/// there is none.
std::string find_python(const std::string& program, const std::string& path);

}  // namespace hvd::launcher
