#include "core/bootstrap/local_rendezvous.h"

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
#include "core/bootstrap/rendezvous.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

// Rank 0 usually listens within milliseconds of the others; they poll, since nothing notifies them.
constexpr auto kFirstPause = 1ms;
constexpr auto kLongestPause = 20ms;

constexpr const char* kAsking = "asking rank 0 for its address";

/// A name of fixed length for a job name of any length, different for each user.
std::string socket_name(const std::string& job_name) {
  const NameHash hash = hash_name(fmt::format("{}/{}", ::geteuid(), job_name));
  return fmt::format("horovod-rendezvous-{:016x}{:016x}", hash.high, hash.low);
}

void pause(Duration duration, const StartDeadline& deadline) {
  const auto part =
      std::chrono::ceil<std::chrono::milliseconds>(std::min(duration, deadline.left()));
  ::poll(nullptr, 0, static_cast<int>(part.count()));
}

FileDescriptor connect_to_rank_0(const std::string& job_name, const StartDeadline& deadline) {
  const std::string name = socket_name(job_name);
  for (Duration wait = kFirstPause;; wait = std::min<Duration>(2 * wait, kLongestPause)) {
    if (FileDescriptor socket = try_connect_unix(name, deadline.at)) return socket;
    if (deadline.left() == Duration::zero()) deadline.fail_at("rank 0 has not joined the job", 0);
    pause(wait, deadline);
  }
}

}  // namespace

RendezvousListener::RendezvousListener(const std::string& job_name, std::string root_address)
    : listener_(try_listen_unix(socket_name(job_name))), root_address_(std::move(root_address)) {
  if (!listener_) {
    fail(Code::internal,
         fmt::format(
             "another process on this machine already listens for the ranks of the job \"{}\"; "
             "if it is left over from an earlier run, end it (ss -xlp | grep "
             "horovod-rendezvous)",
             job_name));
  }
}

bool RendezvousListener::answer() {
  for (int visitors = 0; visitors < kConnectionsPerTurn; ++visitors) {
    const Visitor visitor = accept_visitor(listener_);
    if (!visitor.socket && !is_out_of_resources(errno)) return true;
    if (!visitor.socket) {
      failures_.log(LogLevel::warning,
                    "rank 0 cannot accept the other ranks of this machine: " + errno_text(errno));
      return false;
    }
    if (!visitor.is_of_this_user()) {
      const auto& peer = visitor.peer;
      strangers_.log(LogLevel::warning,
                     fmt::format("refused this job's key to a process of {}",
                                 peer ? fmt::format("user {}", peer->user) : "an unknown user"));
      continue;
    }
    answer_shortly(visitor, as_bytes(root_address_));
  }
  return true;
}

std::string request_root_address(const std::string& job_name, const StartDeadline& deadline) {
  const FileDescriptor socket = connect_to_rank_0(job_name, deadline);
  if (user_at(socket) != ::geteuid()) {
    fail(Code::unauthorized,
         fmt::format("a process of another user listens as rank 0 of the job \"{}\"", job_name));
  }
  if (!wait_until_ready(socket.get(), POLLIN, deadline.at))
    deadline.fail_at("rank 0 has joined the job but not answered", 0);
  const ByteVector text = receive_all(socket.get(), kMaxRendezvousBytes, deadline.at, kAsking);
  if (text.empty()) fail(Code::peer_lost, fmt::format("{}: it closed the connection", kAsking), 0);
  return std::string(as_text(text));
}

}  // namespace hvd
