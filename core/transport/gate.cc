#include "core/transport/gate.h"

#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

const SystemClock system_clock;
uint64_t tag_of(const FileDescriptor& fd) { return static_cast<uint64_t>(fd.get()); }

}  // namespace

Gate::Gate(const JobKey& key, Hello mine) : Gate(key, std::move(mine), system_clock) {}

Gate::Gate(const JobKey& key, Hello mine, const Clock& clock)
    : key_(key), mine_(std::move(mine)), clock_(clock) {
  alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!alarm_) fail_errno("timerfd_create");
  waiter_.watch(alarm_.get(), tag_of(alarm_));
}

void Gate::listen_on(FileDescriptor listener) {
  HVD_ASSERT(!listener_);
  listener_ = std::move(listener);
  waiter_.watch(listener_.get(), tag_of(listener_));
}

void Gate::dial(FileDescriptor socket, int rank) {
  enter(std::move(socket), Handshake::Role::dialer, rank);
}

void Gate::enter(FileDescriptor socket, Handshake::Role role, int dialed_rank) {
  const int fd = socket.get();
  Handshake handshake(role, key_, mine_);
  // On a new connection so few bytes always fit; if not, the other side will not answer, and that
  // is noticed.
  const ByteVector first = handshake.start();
  if (!first.empty()) ::send(fd, first.data(), first.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  candidates_.emplace(fd, Candidate{std::move(socket), std::move(handshake), dialed_rank,
                                    clock_.now() + kMaxSilence});
  if (dialed_rank < 0) ++strangers_;
  waiter_.watch(fd, static_cast<uint64_t>(fd));
}

std::vector<Arrival> Gate::step() {
  std::vector<Arrival> arrivals;
  std::vector<uint64_t> ready;
  waiter_.poll(ready);
  for (const uint64_t tag : ready) {
    const int fd = static_cast<int>(tag);
    const auto found = candidates_.find(fd);
    if (found == candidates_.end() || !advance(found->second, arrivals)) continue;
    if (found->second.dialed_rank < 0) --strangers_;
    candidates_.erase(found);
  }
  drop_the_silent();
  accept_waiting();
  set_alarm();
  return arrivals;
}

void Gate::accept_waiting() {
  while (listener_ && strangers_ < kMaxStrangers) {
    FileDescriptor socket = accept_one(listener_);
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors: what waits in the backlog is tried again when the alarm rings.
      return pause_listening(errno != EAGAIN && errno != EWOULDBLOCK);
    }
    enter(std::move(socket), Handshake::Role::acceptor, -1);
  }
  pause_listening(true);
}

void Gate::pause_listening(bool paused) {
  if (paused_ == paused || !listener_) return;
  paused_ = paused;
  if (paused) {
    waiter_.forget(listener_.get());
  } else {
    waiter_.watch(listener_.get(), tag_of(listener_));
  }
}

void Gate::drop_the_silent() {
  for (auto entry = candidates_.begin(); entry != candidates_.end();) {
    const Candidate& candidate = entry->second;
    // Whoever dialed has a deadline of his own and a better message.
    if (candidate.dialed_rank >= 0 || clock_.now() < candidate.deadline) {
      ++entry;
      continue;
    }
    waiter_.forget(candidate.socket.get());
    --strangers_;
    entry = candidates_.erase(entry);
  }
}

void Gate::set_alarm() {
  const bool needed = strangers_ > 0 || paused_;
  itimerspec when{};
  if (needed) when.it_value.tv_sec = 1;
  uint64_t rings;
  [[maybe_unused]] const ssize_t got = ::read(alarm_.get(), &rings, sizeof rings);
  if (::timerfd_settime(alarm_.get(), 0, &when, nullptr) != 0) fail_errno("timerfd_settime");
}

/// A boundary: whatever a stranger does ends his connection and nothing else.
bool Gate::advance(Candidate& candidate, std::vector<Arrival>& arrivals) try {
  converse(candidate);
  if (candidate.handshake.wanted() > 0) return false;
  candidate.handshake.check_agreement();
  waiter_.forget(candidate.socket.get());
  arrivals.push_back(
      {std::move(candidate.socket), *candidate.handshake.peer(), candidate.dialed_rank, ""});
  return true;
} catch (const Error& error) {
  log(LogLevel::debug, std::string("connection refused: ") + error.what());
  waiter_.forget(candidate.socket.get());
  if (candidate.dialed_rank >= 0) {
    arrivals.push_back({FileDescriptor(), Hello(), candidate.dialed_rank, error.what()});
  }
  return true;
}

void Gate::converse(Candidate& candidate) {
  const int fd = candidate.socket.get();
  std::array<std::byte, 64> room;
  while (const size_t wanted = candidate.handshake.wanted()) {
    HVD_ASSERT(wanted <= room.size());
    const ssize_t count = ::recv(fd, room.data(), wanted, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail(Code::unauthorized,
           "the other side closed the connection before it proved the job's key");
    }
    const ByteVector answer = candidate.handshake.feed(ConstBytes(room).first(count));
    if (!answer.empty()) ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace hvd
