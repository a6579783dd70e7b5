// Reads a text file that the user names: a host file or a config file. It may be a pipe
// (`<(command)` of a shell). Limits the size, and how long a pipe may be silent.
#pragma once

#include <string>

namespace hvd::launcher {

/// `what` is for messages, such as `host file`. Throws Error{invalid_argument} naming the file and
/// why it cannot be read.
std::string read_text_file(const std::string& path, const std::string& what);

}  // namespace hvd::launcher
