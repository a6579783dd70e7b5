// Writes the results of --help, --version and --check-build to standard output.
#pragma once

#include <string>

namespace hvd::launcher {

/// Writes all of `text`. Returns the exit code: 0, or 1 after reporting on standard error that it
/// could not be written. A closed pipe (`| head`) is not an error.
int print(const std::string& text);

}  // namespace hvd::launcher
