// What the kernel tells about itself in files of a few words.
#pragma once

#include <string>

namespace hvd::job {

/// At most the first 4 KiB; nothing when the file is not there.
std::string read_small_file(const std::string& path);

}  // namespace hvd::job
