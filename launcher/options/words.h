// Splits text at blanks, and tells numbers from other words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Splits a line of arguments into words as a shell does: at blanks, except in quotes and after a
/// backslash. Nothing is expanded. Throws Error{invalid_argument} naming `flag` if a quote is not
/// closed.
std::vector<std::string> split_words(std::string_view flag, std::string_view text);

inline constexpr std::string_view kBlanks = " \t\r\v\f\n";
/// Without the blanks at both ends.
std::string_view trimmed(std::string_view text);
/// One digit at least, and nothing else.
bool is_number(std::string_view text);

}  // namespace hvd::launcher
