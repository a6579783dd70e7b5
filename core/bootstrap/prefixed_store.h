// The keys of a Store that have a common prefix, for jobs that share one Store.
#pragma once

#include <string>
#include <utility>

#include "core/transport/store.h"

namespace hvd {

class PrefixedStore final : public Store {
 public:
  /// `whole` is borrowed.
  PrefixedStore(Store& whole, std::string prefix) : whole_(whole), prefix_(std::move(prefix)) {}

  void set(const std::string& key, ConstBytes value) override { whole_.set(prefix_ + key, value); }
  void set_within(const std::string& key, ConstBytes value, Duration timeout) override {
    whole_.set_within(prefix_ + key, value, timeout);
  }
  std::optional<ByteVector> wait(const std::string& key, Duration timeout) override {
    return whole_.wait(prefix_ + key, timeout);
  }
  std::optional<ByteVector> peek(const std::string& key) override {
    return whole_.peek(prefix_ + key);
  }
  std::optional<ByteVector> poll(const std::string& key) override {
    return whole_.poll(prefix_ + key);
  }
  void stop_polling() override { whole_.stop_polling(); }
  int fd() const override { return whole_.fd(); }

 private:
  Store& whole_;
  std::string prefix_;
};

}  // namespace hvd
