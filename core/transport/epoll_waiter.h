// The production Waiter: an epoll instance with an eventfd as doorbell.
#pragma once

#include <unordered_map>

#include "core/transport/file_descriptor.h"
#include "core/transport/waiter.h"

namespace hvd {

class EpollWaiter final : public Waiter {
 public:
  EpollWaiter();

  void watch(int fd, uint64_t tag) override;
  void watch_end(int fd, uint64_t tag) override;
  void watch_writable(int fd, uint64_t tag, bool on) override;
  void forget(int fd) override;
  void poll(std::vector<uint64_t>& ready) override;
  void wait(std::optional<TimePoint> until, std::vector<uint64_t>& ready) override;
  void park(std::optional<TimePoint> until) override;
  void ring() override;
  int doorbell_fd() const override { return doorbell_.get(); }

  /// Readable while any event is ready, the doorbell included; for integration into another event
  /// loop.
  int fd() const { return epoll_.get(); }

 private:
  /// Appends the ready tags and resets the doorbell. `timeout` in milliseconds; -1: no timeout.
  void collect(int timeout, std::vector<uint64_t>& ready);
  void answer_doorbell();

  struct Watched {
    uint64_t tag = 0;
    bool writable = false;
  };
  FileDescriptor epoll_;
  FileDescriptor doorbell_;
  std::unordered_map<int, Watched> watched_;
};

}  // namespace hvd
