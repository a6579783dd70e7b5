// For tests: the Store that a launcher serves, in a thread of its own.
#pragma once

#include <poll.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "core/transport/job_number.h"
#include "core/transport/socket.h"
#include "core/transport/store_server.h"

namespace hvd::test {

/// Thread-safe.
class Launcher {
 public:
  explicit Launcher(const JobKey& key) : server_(key, "127.0.0.1", 0) {
    thread_ = std::thread([this] { run(); });
  }
  ~Launcher() {
    stop_ = true;
    thread_.join();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  Address address() const { return {"127.0.0.1", server_.port()}; }
  /// Whether a rank waits for another one in the generation of the job `number`.
  bool is_awaited_in(uint32_t number) {
    const std::lock_guard lock(mutex_);
    return !server_.waiting_to_start(launcher_generation(number)).empty();
  }
  void abandon(uint32_t number, const std::string& why) {
    const std::lock_guard lock(mutex_);
    server_.abandon_jobs_before(number + 1, why);
  }

 private:
  void run() {
    while (!stop_) {
      pollfd entry{server_.fd(), POLLIN, 0};
      ::poll(&entry, 1, 5);
      const std::lock_guard lock(mutex_);
      server_.step();
    }
  }
  std::mutex mutex_;
  StoreServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hvd::test
