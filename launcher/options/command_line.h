// Splits the command line into flags with their values and the command. Reports errors in the flags
// themselves: an unknown flag, a missing value, two flags that exclude each other. options.h
// interprets the values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/flags.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

struct CommandLine {
  std::vector<Given> given;
  std::vector<std::string> command;

  /// Returns the last flag with this name in parse_args(); null if none was given.
  const Given* last(std::string_view dest) const;
  Options::Mode mode() const;
};

/// `arguments` excludes the program's name. Throws Error{invalid_argument} naming the flag, with a
/// hint if it is a flag of another launcher or similar to one of ours.
CommandLine read_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::launcher
