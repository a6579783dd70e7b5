// For tests: a file for HOROVOD_SECRET_FILE, deleted with its object.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace hvd::test {

class SecretFile {
 public:
  explicit SecretFile(const std::string& text, mode_t mode = 0600)
      : path_(fmt::format("{}/horovod-secret-{}", ::testing::TempDir(), ::getpid())) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hvd::test
