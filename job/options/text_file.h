// A file of text that the user names: a host file, a config file. It may be a pipe (`<(command)` of
// a shell). Limited in size, and in the time that a pipe may be silent.
#pragma once

#include <string>

namespace hvd::job {

/// `what` is for messages, as `host file`. Throws Error{invalid_argument} naming the file and why
/// it cannot be read.
std::string read_text_file(const std::string& path, const std::string& what);

}  // namespace hvd::job
