// Describes a parsed command line as JSON, for horovod.runner.launch.parse_args(). Only the
// launcher has the table of flags.
#pragma once

#include <string>

#include "launcher/options/command_line.h"

namespace hvd::launcher {

/// Returns a JSON object: `values`, the value of each name in parse_args() (null or false if the
/// flag is not given), and `warnings`, one line each. The mode of the command line must be
/// Mode::run or an examining one.
std::string described(const CommandLine& line, const Options& options);

/// Returns a JSON object with one text. `print`: the text that a flag such as --help asks for.
/// `error`: why a value is not allowed.
std::string answer_with(const char* key, const std::string& text);

}  // namespace hvd::launcher
