// Splits a line of arguments into words as a shell does: at blanks, except in quotes and after a
// backslash. Nothing is expanded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Throws Error{invalid_argument} naming `flag` if a quote is not closed.
std::vector<std::string> split_words(std::string_view flag, std::string_view text);

}  // namespace hvd::launcher
