#include "launcher/start_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hvd::launcher {

bool write_start_file(const std::string& path, const std::vector<StartRow>& rows) {
  std::ofstream file(path);
  const bool opened = file.is_open();
  file << start_json(rows);
  file.close();
  if (file) return true;
  std::error_code none;
  const auto status = std::filesystem::symlink_status(path, none);
  if (opened && std::filesystem::is_regular_file(status)) unlink(path.c_str());
  return false;
}

}  // namespace hvd::launcher
