// A Store in this process: for tests whose ranks are threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "core/transport/store.h"

namespace hvd {

class MemStore final : public Store {
 public:
  void set(const std::string& key, ConstBytes value) override;
  std::optional<ByteVector> wait(const std::string& key, Duration timeout) override;
  std::optional<ByteVector> peek(const std::string& key) override;

 private:
  std::optional<ByteVector> find(const std::string& key) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, ByteVector> values_;
};

}  // namespace hvd
