#include "launcher/launch_events.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>

#include "core/base/error.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {
namespace {

/// Tags from kLinks on are the indexes of links.
constexpr uint64_t kAlways = 0, kStore = 1, kLinks = 2;
constexpr int64_t kMaxTimeoutMilliseconds = 1 << 30;

}  // namespace

LaunchEvents::LaunchEvents() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail_errno("making the epoll of the job");
}

void LaunchEvents::watch_always(int fd) { watch(epoll_, fd, kAlways); }

void LaunchEvents::watch_store(int fd) { watch(epoll_, fd, kStore); }

void LaunchEvents::watch_link(size_t index, int fd) { watch(epoll_, fd, kLinks + index); }

void LaunchEvents::watch_changes(int fd) {
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = kAlways}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void LaunchEvents::unwatch_changes(int fd) { unwatch(epoll_, fd); }

void LaunchEvents::watch_console(Stream stream, const Console& console) {
  bool& watched = console_watched_[static_cast<size_t>(stream)];
  if (watched == console.has_waiting()) return;
  epoll_event event{.events = EPOLLOUT, .data = {.u64 = kAlways}};
  epoll_ctl(epoll_.get(), watched ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, console.fd(), &event);
  watched = !watched;
}

void LaunchEvents::wait(std::optional<Duration> timeout) {
  int milliseconds = -1;
  if (timeout) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*timeout).count();
    milliseconds = static_cast<int>(std::clamp<int64_t>(rest, 0, kMaxTimeoutMilliseconds));
  }
  epoll_event ready[64];
  const int count = epoll_wait(epoll_.get(), ready, std::size(ready), milliseconds);
  if (count < 0 && errno != EINTR) fail_errno("waiting for the job");
  store_moved_ = false;
  moved_links_.clear();
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    store_moved_ = store_moved_ || tag == kStore;
    if (tag >= kLinks) moved_links_.insert(tag - kLinks);
  }
}

}  // namespace hvd::launcher
