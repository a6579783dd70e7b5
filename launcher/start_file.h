// The file of --tell-start: the start-up state of each host, for the doctor.
#pragma once

#include <string>
#include <vector>

#include "launcher/driver/start_table.h"

namespace hvd::launcher {

/// Returns false if it cannot be written. A partly written file is removed, unless it could not be
/// opened for writing or is not a regular file.
bool write_start_file(const std::string& path, const std::vector<StartRow>& rows);

}  // namespace hvd::launcher
