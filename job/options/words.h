// Cuts a line of arguments into words as a shell does, without a shell: blanks separate, quotes and
// backslashes keep them. Nothing is expanded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::job {

/// `flag` is named in the Error{invalid_argument} that an open quote is.
std::vector<std::string> split_words(std::string_view flag, std::string_view text);

}  // namespace hvd::job
