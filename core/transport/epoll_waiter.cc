#include "core/transport/epoll_waiter.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

constexpr int kEventsAtOnce = 64;  // the next call reports the rest

constexpr uint32_t kEnds = EPOLLRDHUP;
constexpr uint32_t kReads = EPOLLIN | kEnds;

void control(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) fail_errno("epoll_ctl");
}

/// Waits with microsecond precision, which epoll_wait does not have; epoll_pwait2 is too new.
void sleep_until_readable(int fd, std::optional<TimePoint> until) {
  timespec timeout{};
  if (until) {
    const auto left = std::max(*until - std::chrono::steady_clock::now(), Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timeout = {static_cast<time_t>(seconds.count()), (left - seconds).count()};
  }
  pollfd entry{fd, POLLIN, 0};
  if (::ppoll(&entry, 1, until ? &timeout : nullptr, nullptr) < 0 && errno != EINTR)
    fail_errno("ppoll");
}

}  // namespace

EpollWaiter::EpollWaiter() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail_errno("epoll_create1");
  doorbell_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_) fail_errno("eventfd");
  control(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), kReads);
}

void EpollWaiter::watch(int fd, uint64_t tag) {
  HVD_ASSERT(!watched_.contains(fd));
  control(epoll_.get(), EPOLL_CTL_ADD, fd, kReads);
  watched_.emplace(fd, Watched{tag, false});
}

void EpollWaiter::watch_end(int fd, uint64_t tag) {
  HVD_ASSERT(!watched_.contains(fd));
  control(epoll_.get(), EPOLL_CTL_ADD, fd, kEnds);
  watched_.emplace(fd, Watched{tag, false});
}

void EpollWaiter::watch_writable(int fd, uint64_t tag, bool on) {
  const auto entry = watched_.find(fd);
  if (entry == watched_.end()) return;
  HVD_ASSERT(entry->second.tag == tag);
  if (entry->second.writable == on) return;
  entry->second.writable = on;
  control(epoll_.get(), EPOLL_CTL_MOD, fd, kReads | (on ? EPOLLOUT : 0u));
}

void EpollWaiter::forget(int fd) {
  if (watched_.erase(fd) == 0) return;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0) fail_errno("epoll_ctl");
}

void EpollWaiter::collect(int timeout, std::vector<uint64_t>& ready) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout);
  if (count < 0 && errno != EINTR) fail_errno("epoll_wait");
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == doorbell_.get()) {
      answer_doorbell();
    } else if (const auto entry = watched_.find(events[i].data.fd); entry != watched_.end()) {
      ready.push_back(entry->second.tag);
    }
  }
}

void EpollWaiter::poll(std::vector<uint64_t>& ready) { collect(0, ready); }

void EpollWaiter::wait(std::optional<TimePoint> until, std::vector<uint64_t>& ready) {
  if (until) sleep_until_readable(epoll_.get(), *until);
  collect(until ? 0 : -1, ready);
}

void EpollWaiter::park(std::optional<TimePoint> until) {
  sleep_until_readable(epoll_.get(), until);
}

void EpollWaiter::answer_doorbell() {
  uint64_t rings;
  [[maybe_unused]] const ssize_t got = ::read(doorbell_.get(), &rings, sizeof rings);
}

void EpollWaiter::ring() {
  const uint64_t one = 1;
  const int saved = errno;  // must be preserved in a signal handler
  [[maybe_unused]] const ssize_t put = ::write(doorbell_.get(), &one, sizeof one);
  errno = saved;
}

}  // namespace hvd
