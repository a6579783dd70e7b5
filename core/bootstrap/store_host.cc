#include "core/bootstrap/store_host.h"

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/start_thread.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr int kNoTimeout = -1;
constexpr int kIgnored = -1;  // poll() skips it
constexpr std::chrono::seconds kLastClientsTimeout{2};

}  // namespace

StoreHost::StoreHost(const JobKey& key, const std::string& host, uint16_t port)
    : server_(key, host, port), signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!signal_) fail_errno("eventfd");
}

StoreHost::~StoreHost() {
  if (!thread_.joinable()) return;
  ending_.store(true, std::memory_order_relaxed);
  ::eventfd_write(signal_.get(), 1);
  thread_.join();
}

void StoreHost::open(std::optional<RendezvousListener> listener) {
  HVD_ASSERT(!thread_.joinable());
  listener_ = std::move(listener);
  thread_ = start_thread([this] { serve(); });
}

void StoreHost::all_connected() {
  all_connected_.store(true, std::memory_order_relaxed);
  ::eventfd_write(signal_.get(), 1);
}

/// The boundary of the thread. If the Store fails, the ranks that use it report that it was closed.
void StoreHost::serve() noexcept try {
  ::pthread_setname_np(::pthread_self(), "horovod-store");
  for (;;) {
    const bool rests = std::chrono::steady_clock::now() < listener_rests_until_;
    std::array<pollfd, 3> watched{{{signal_.get(), POLLIN, 0},
                                   {server_.fd(), POLLIN, 0},
                                   {listener_ && !rests ? listener_->fd() : kIgnored, POLLIN, 0}}};
    const int timeout = rests ? static_cast<int>(RendezvousListener::kBackOff.count()) : kNoTimeout;
    if (::poll(watched.data(), watched.size(), timeout) < 0) continue;  // EINTR
    if (watched[0].revents != 0 && !read_signal()) return serve_last_clients();
    if (watched[1].revents != 0) server_.step();
    if (watched[2].revents != 0 && listener_) answer_listener();
  }
} catch (const std::exception& error) {
  log(LogLevel::error,
      fmt::format("this rank can no longer serve the job's store: {}", error.what()));
}

bool StoreHost::read_signal() {
  eventfd_t times = 0;
  ::eventfd_read(signal_.get(), &times);
  if (all_connected_.load(std::memory_order_relaxed)) listener_.reset();
  return !ending_.load(std::memory_order_relaxed);
}

void StoreHost::answer_listener() {
  if (!listener_->answer())
    listener_rests_until_ = std::chrono::steady_clock::now() + RendezvousListener::kBackOff;
}

void StoreHost::serve_last_clients() {
  if (all_connected_.load(std::memory_order_relaxed)) return;
  const TimePoint until = std::chrono::steady_clock::now() + kLastClientsTimeout;
  // The deadline is checked each time, since strangers can keep the server's descriptor readable.
  while (server_.has_clients() && std::chrono::steady_clock::now() < until &&
         wait_until_ready(server_.fd(), POLLIN, until))
    server_.step();
}

}  // namespace hvd
