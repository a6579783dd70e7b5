#include "core/transport/gate.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/assert.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
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

size_t Gate::max_strangers() {
  return std::clamp<size_t>(descriptor_limit().soft / 4, 1, kMaxStrangers);
}

void Gate::listen_on(FileDescriptor listener) {
  HVD_ASSERT(!listener_);
  listener_ = std::move(listener);
  is_local_ = is_unix(listener_);
  waiter_.watch(listener_.get(), tag_of(listener_));
}

void Gate::dial(FileDescriptor socket, int rank) {
  enter(std::move(socket), Handshake::Role::dialer, rank);
}

void Gate::enter(FileDescriptor socket, Handshake::Role role, int dialed_rank) {
  const int fd = socket.get();
  Handshake handshake(role, key_, mine_);
  // These few bytes always fit on a new connection. If not, the peer does not answer, and the time
  // limit applies.
  const ByteVector first = handshake.start();
  if (!first.empty()) ::send(fd, first.data(), first.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  candidates_.emplace(
      fd, Candidate{std::move(socket), std::move(handshake), dialed_rank, clock_.now()});
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
  drop_the_late(arrivals);
  accept_waiting();
  set_alarm();
  return arrivals;
}

void Gate::accept_waiting() {
  if (!listener_) return;
  bool full = false;
  for (int accepted = 0; accepted < kAcceptsPerStep; ++accepted) {
    full = strangers_ >= max_strangers();
    if (full || !accept_next()) break;
  }
  pause_listening(full || out_of_descriptors_);
}

bool Gate::accept_next() {
  FileDescriptor socket = accept_one(listener_);
  const int error = errno;
  out_of_descriptors_ = !socket && is_out_of_resources(error);
  if (out_of_descriptors_)
    failures_.log(LogLevel::warning, "a connection cannot be accepted: " + errno_text(error));
  if (!socket) return error == EINTR || error == ECONNABORTED;
  if (is_local_ && user_at(socket) != ::geteuid()) return true;
  enter(std::move(socket), Handshake::Role::acceptor, -1);
  return true;
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

void Gate::drop_the_late(std::vector<Arrival>& arrivals) {
  for (auto entry = candidates_.begin(); entry != candidates_.end();) {
    if (!is_late(entry->second) || still_in_time(entry->second, arrivals)) {
      ++entry;
      continue;
    }
    --strangers_;
    entry = candidates_.erase(entry);
  }
}

/// Data of a late candidate may not have been read yet, because one step reads only from some
/// candidates.
bool Gate::still_in_time(Candidate& late, std::vector<Arrival>& arrivals) {
  if (advance(late, arrivals)) return false;
  if (!is_late(late)) return true;
  refuse(late, Error(Code::timed_out, "it has not proved the job's key in time"), arrivals);
  return false;
}

bool Gate::is_late(const Candidate& stranger) const {
  // The dialer has its own deadline and a better error message.
  if (stranger.dialed_rank >= 0) return false;
  const Duration age = clock_.now() - stranger.entered;
  if (!paused_) return age >= kMaxSilence;
  return age >= (stranger.handshake.has_challenge() ? Duration(kMaxProofWhenFull)
                                                    : Duration(kMaxSilenceWhenFull));
}

void Gate::set_alarm() {
  constexpr auto kTick = std::chrono::seconds(1);
  constexpr auto kTickWhenFull = std::chrono::milliseconds(50);
  const std::chrono::nanoseconds tick = paused_          ? kTickWhenFull
                                        : strangers_ > 0 ? kTick
                                                         : std::chrono::nanoseconds(0);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(tick);
  const itimerspec when{
      .it_interval = {},
      .it_value = {.tv_sec = seconds.count(), .tv_nsec = (tick - seconds).count()}};
  uint64_t rings;
  [[maybe_unused]] const ssize_t got = ::read(alarm_.get(), &rings, sizeof rings);
  if (::timerfd_settime(alarm_.get(), 0, &when, nullptr) != 0) fail_errno("timerfd_settime");
}

/// Error boundary: an invalid message of a peer ends its connection and has no other effect.
bool Gate::advance(Candidate& candidate, std::vector<Arrival>& arrivals) try {
  if (!converse(candidate))
    fail(Code::peer_lost, "the peer closed the connection before it proved the job's key");
  if (candidate.handshake.wanted() > 0) return false;
  candidate.handshake.check_agreement();
  waiter_.forget(candidate.socket.get());
  arrivals.push_back({std::move(candidate.socket), *candidate.handshake.peer(),
                      candidate.dialed_rank, "", candidate.handshake.keys()});
  return true;
} catch (const Error& error) {
  refuse(candidate, error, arrivals);
  return true;
}

void Gate::refuse(Candidate& candidate, const Error& why, std::vector<Arrival>& arrivals) {
  waiter_.forget(candidate.socket.get());
  if (candidate.dialed_rank >= 0) {
    arrivals.push_back({FileDescriptor(), Hello(), candidate.dialed_rank, why.what()});
  } else if (why.code() != Code::peer_lost) {  // a rank, too, drops a second connection
    refusals_.log(LogLevel::warning,
                  fmt::format("a connection from {} to a port of this job was refused: {}",
                              peer_address(candidate.socket), why.what()));
  }
}

bool Gate::converse(Candidate& candidate) {
  const int fd = candidate.socket.get();
  std::array<std::byte, Handshake::kMaxWantedBytes> room;
  while (const size_t wanted = candidate.handshake.wanted()) {
    const ssize_t count = ::recv(fd, room.data(), wanted, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    const ByteVector answer = candidate.handshake.feed(ConstBytes(room).first(count));
    if (!answer.empty()) ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return true;
}

}  // namespace hvd
