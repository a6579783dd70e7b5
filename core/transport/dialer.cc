#include "core/transport/dialer.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"

namespace hvd {
namespace {

/// Parses a numeric address without DNS; nullopt if it is not one.
std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> parse(const Address& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

void watch(int epoll, int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("epoll_ctl");
}

}  // namespace

Dialer::Dialer()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), now_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !now_) fail_errno("making a dialer");
  watch(epoll_.get(), now_.get(), EPOLLIN);
}

void Dialer::dial(int id, const Address& address) {
  Attempt attempt{id, address, FileDescriptor()};
  const auto parsed = parse(address);
  if (!parsed) return end(std::move(attempt), EADDRNOTAVAIL);
  attempt.socket =
      FileDescriptor(::socket(parsed->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!attempt.socket) return end(std::move(attempt), errno);
  const int fd = attempt.socket.get();
  if (::connect(fd, parsed->ai_addr, parsed->ai_addrlen) == 0) return end(std::move(attempt), 0);
  if (errno != EINPROGRESS && errno != EINTR) return end(std::move(attempt), errno);
  watch(epoll_.get(), fd, EPOLLOUT);
  attempts_.insert_or_assign(fd, std::move(attempt));
}

void Dialer::end(Attempt attempt, int error) {
  Dialed ended{attempt.id, attempt.address, std::move(attempt.socket), ""};
  if (error != 0) {
    ended.socket.reset();
    ended.why = fmt::format("connecting to {}: {}", to_text(attempt.address), errno_text(error));
  }
  ended_.push_back(std::move(ended));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(now_.get(), &one, sizeof one);
}

void Dialer::forget(int id) {
  std::erase_if(attempts_, [&](const auto& entry) { return entry.second.id == id; });
  std::erase_if(ended_, [&](const Dialed& one) { return one.id == id; });
}

bool Dialer::is_dialing(int id) const {
  return std::ranges::any_of(attempts_, [&](const auto& one) { return one.second.id == id; }) ||
         std::ranges::any_of(ended_, [&](const Dialed& one) { return one.id == id; });
}

std::vector<Dialed> Dialer::step() {
  std::array<epoll_event, 64> ready{};
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    auto found = attempts_.extract(ready[static_cast<size_t>(i)].data.fd);
    if (found.empty()) continue;
    const int fd = found.key();
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    end(std::move(found.mapped()), error);
  }
  uint64_t rings;
  [[maybe_unused]] const ssize_t got = ::read(now_.get(), &rings, sizeof rings);
  return std::exchange(ended_, {});
}

}  // namespace hvd
