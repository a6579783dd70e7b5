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
#include "core/group/bootstrap/local_introduction.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr int kForEver = -1;
constexpr std::chrono::seconds kPatienceWithLeavers{2};  // they are waiting for this very answer

/// Signals are for the program's own threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

StoreHost::StoreHost(const JobKey& key, const std::string& host, uint16_t port)
    : server_(key, host, port), end_(::eventfd(0, EFD_CLOEXEC)) {
  if (!end_) fail_errno("eventfd");
}

StoreHost::~StoreHost() {
  if (!thread_.joinable()) return;
  ::eventfd_write(end_.get(), 1);
  thread_.join();
}

void StoreHost::open(FileDescriptor door, std::string word) {
  HVD_ASSERT(!thread_.joinable());
  door_ = std::move(door);
  word_ = std::move(word);
  thread_ = std::thread([this] { serve(); });
}

/// The boundary of the thread: a Store that cannot go on is missed by those who ask it, and they
/// say so.
void StoreHost::serve() noexcept try {
  block_signals();
  ::pthread_setname_np(::pthread_self(), "horovod-store");
  std::array<pollfd, 3> watched{{{end_.get(), POLLIN, 0},
                                 {server_.fd(), POLLIN, 0},
                                 {door_ ? door_.get() : -1, POLLIN, 0}}};  // -1: left out
  for (;;) {
    if (::poll(watched.data(), watched.size(), kForEver) < 0) continue;  // EINTR
    if (watched[0].revents != 0) return let_leave();
    if (watched[1].revents != 0) server_.step();
    if (watched[2].revents != 0) answer_door(door_, word_);
  }
} catch (const std::exception& error) {
  log(LogLevel::error, fmt::format("this rank no longer serves the job's store: {}", error.what()));
}

void StoreHost::let_leave() {
  if (all_have_met_.load(std::memory_order_relaxed)) return;
  const TimePoint until = std::chrono::steady_clock::now() + kPatienceWithLeavers;
  while (server_.has_clients() && wait_until_ready(server_.fd(), POLLIN, until)) server_.step();
}

}  // namespace hvd
