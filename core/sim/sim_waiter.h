// The Waiter of a simulated rank. It never sleeps, and reports the processes of its host that have
// ended: later than they did, and in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/transport/waiter.h"

namespace hvd::sim {

class SimWaiter final : public Waiter {
 public:
  explicit SimWaiter(std::mt19937_64& random) : random_(random) {}

  void watch(int, uint64_t) override {}
  void watch_end(int, uint64_t) override {}
  void watch_writable(int, uint64_t, bool) override {}
  void forget(int) override {}
  void poll(std::vector<uint64_t>& ready) override {
    while (!ended_.empty() && random_() % 2 == 0) {
      std::swap(ended_[random_() % ended_.size()], ended_.back());
      ready.push_back(ended_.back());
      ended_.pop_back();
    }
  }
  void wait(std::optional<TimePoint>, std::vector<uint64_t>&) override {}
  void park(std::optional<TimePoint>) override {}
  void ring() override {}
  int doorbell_fd() const override { return -1; }

  /// The process of `rank`, on the same host, has ended.
  void tell_end(int rank) { ended_.push_back(static_cast<uint64_t>(rank)); }
  bool has_news() const { return !ended_.empty(); }

 private:
  std::mt19937_64& random_;
  std::vector<uint64_t> ended_;
};

}  // namespace hvd::sim
