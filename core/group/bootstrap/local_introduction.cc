#include "core/group/bootstrap/local_introduction.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/group/bootstrap/introduction.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

// Rank 0 is mostly there within milliseconds of the others; nothing tells them when its door opens.
constexpr auto kFirstPause = 1ms;
constexpr auto kLongestPause = 20ms;

constexpr const char* kAsking = "asking rank 0 how to reach it";

/// Of any length in, of the length of a socket's name out; each user has names of his own.
std::string socket_name(const std::string& job_name) {
  const NameHash hash = hash_name(fmt::format("{}/{}", ::geteuid(), job_name));
  return fmt::format("horovod-door-{:016x}{:016x}", hash.high, hash.low);
}

void pause(Duration duration, const StartDeadline& deadline) {
  const auto part =
      std::chrono::ceil<std::chrono::milliseconds>(std::min(duration, deadline.left()));
  ::poll(nullptr, 0, static_cast<int>(part.count()));
}

FileDescriptor knock(const std::string& job_name, const StartDeadline& deadline) {
  const std::string name = socket_name(job_name);
  for (Duration wait = kFirstPause;; wait = std::min<Duration>(2 * wait, kLongestPause)) {
    if (FileDescriptor socket = try_connect_unix(name, deadline.at)) return socket;
    if (deadline.left() == Duration::zero()) deadline.fail_at("rank 0 has not come", 0);
    pause(wait, deadline);
  }
}

}  // namespace

Door::Door(const std::string& job_name, std::string word)
    : listener_(try_listen_unix(socket_name(job_name))), word_(std::move(word)) {
  if (!listener_) {
    fail(Code::internal,
         fmt::format("the ranks of this job (\"{}\") cannot be told from those of another one: a "
                     "process of this machine answers for them already; if it is left from an "
                     "earlier run, end it (ss -xlp | grep horovod-door)",
                     job_name));
  }
}

bool Door::answer() {
  for (int visitors = 0; visitors < kVisitorsPerTurn; ++visitors) {
    const FileDescriptor visitor = accept_one(listener_);
    if (!visitor && !is_out_of_resources(errno)) return true;
    if (!visitor) {
      failures_.log(LogLevel::warning,
                    "rank 0 cannot answer the other ranks of this machine: " + errno_text(errno));
      return false;
    }
    const auto user = user_at(visitor);
    if (user != ::geteuid()) {
      strangers_.log(LogLevel::warning,
                     fmt::format("a process of {} asked for this job's key, and got none",
                                 user ? fmt::format("user {}", *user) : "an unknown user"));
      continue;
    }
    // A new socket has room for so few bytes; who has hung up already has no need of them.
    static_cast<void>(
        ::send(visitor.get(), word_.data(), word_.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  return true;
}

std::string ask_at_door(const std::string& job_name, const StartDeadline& deadline) {
  const FileDescriptor socket = knock(job_name, deadline);
  if (user_at(socket) != ::geteuid()) {
    fail(Code::unauthorized,
         fmt::format("another user's process answers for rank 0 of this job (\"{}\")", job_name));
  }
  std::string word(kMaxIntroductionBytes, '\0');
  size_t taken = 0;
  for (;;) {
    if (!wait_until_ready(socket.get(), POLLIN, deadline.at))
      deadline.fail_at("rank 0 has come but not answered", 0);
    const ssize_t count =
        ::recv(socket.get(), word.data() + taken, word.size() - taken, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) fail_errno(kAsking);
    if (count == 0) break;
    taken += static_cast<size_t>(count);
    if (taken == word.size()) break;
  }
  word.resize(taken);
  if (word.empty()) fail(Code::peer_lost, fmt::format("{}: it closed the connection", kAsking), 0);
  return word;
}

}  // namespace hvd
