// Reads small files of the kernel, such as those in /proc.
#pragma once

#include <string>

namespace hvd::launcher {

/// Returns at most the first 16 KiB; empty if the file does not exist.
std::string read_small_file(const std::string& path);

}  // namespace hvd::launcher
