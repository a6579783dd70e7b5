#include "core/group/bootstrap/store_host.h"

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr int kForEver = -1;
constexpr int kNothing = -1;                             // poll() leaves it out
constexpr std::chrono::seconds kPatienceWithLeavers{2};  // they are waiting for this very answer

/// Signals are for the program's own threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

StoreHost::StoreHost(const JobKey& key, const std::string& host, uint16_t port)
    : server_(key, host, port), news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!news_) fail_errno("eventfd");
}

StoreHost::~StoreHost() {
  if (!thread_.joinable()) return;
  leaving_.store(true, std::memory_order_relaxed);
  ::eventfd_write(news_.get(), 1);
  thread_.join();
}

void StoreHost::open(std::optional<Door> door) {
  HVD_ASSERT(!thread_.joinable());
  door_ = std::move(door);
  thread_ = std::thread([this] { serve(); });
}

void StoreHost::all_have_met() {
  all_have_met_.store(true, std::memory_order_relaxed);
  ::eventfd_write(news_.get(), 1);
}

/// The boundary of the thread: a Store that cannot go on is missed by those who ask it, and they
/// say so.
void StoreHost::serve() noexcept try {
  block_signals();
  ::pthread_setname_np(::pthread_self(), "horovod-store");
  for (;;) {
    const bool rests = std::chrono::steady_clock::now() < door_rests_until_;
    std::array<pollfd, 3> watched{{{news_.get(), POLLIN, 0},
                                   {server_.fd(), POLLIN, 0},
                                   {door_ && !rests ? door_->fd() : kNothing, POLLIN, 0}}};
    const int timeout = rests ? static_cast<int>(Door::kBackOff.count()) : kForEver;
    if (::poll(watched.data(), watched.size(), timeout) < 0) continue;  // EINTR
    if (watched[0].revents != 0 && !take_news()) return let_leave();
    if (watched[1].revents != 0) server_.step();
    if (watched[2].revents != 0 && door_) answer_door();
  }
} catch (const std::exception& error) {
  log(LogLevel::error, fmt::format("this rank no longer serves the job's store: {}", error.what()));
}

bool StoreHost::take_news() {
  eventfd_t times = 0;
  ::eventfd_read(news_.get(), &times);
  if (all_have_met_.load(std::memory_order_relaxed)) door_.reset();
  return !leaving_.load(std::memory_order_relaxed);
}

void StoreHost::answer_door() {
  if (!door_->answer()) door_rests_until_ = std::chrono::steady_clock::now() + Door::kBackOff;
}

void StoreHost::let_leave() {
  if (all_have_met_.load(std::memory_order_relaxed)) return;
  const TimePoint until = std::chrono::steady_clock::now() + kPatienceWithLeavers;
  // The time is looked at in each turn: strangers can keep the server's descriptor readable.
  while (server_.has_clients() && std::chrono::steady_clock::now() < until &&
         wait_until_ready(server_.fd(), POLLIN, until))
    server_.step();
}

}  // namespace hvd
