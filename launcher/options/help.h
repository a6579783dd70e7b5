// The text of `horovodrun --help`, made from the table of flags.
#pragma once

#include <string>

namespace hvd::launcher {

/// Lines of at most 80 columns, including a final newline.
std::string help_text();

}  // namespace hvd::launcher
