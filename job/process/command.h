// Whether the command of a job can run on this host, before it is started on any.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::job {

struct FoundCommand {
  std::string program;  ///< path of it; empty: not found
  std::string problem;  ///< why it would fail at once; empty: it would not
};

/// Looks in the PATH of `environment`, and for a Python script relative to the working folder.
FoundCommand find_command(const std::vector<std::string>& command, const Environment& environment);

/// PATH, or what it is where nobody has set it.
std::string path_of(const Environment& environment);

/// The interpreter that was installed with `program`, else python3 of `path`; empty: none.
std::string find_python(const std::string& program, const std::string& path);

}  // namespace hvd::job
