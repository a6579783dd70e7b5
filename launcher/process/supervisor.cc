#include "launcher/process/supervisor.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "launcher/process/supervisor_loop.h"

namespace hvd::launcher {
namespace {

using Kind = SupervisorMessage::Kind;

}  // namespace

Supervisor::Supervisor(const SupervisorSetup& setup) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    fail_errno("making the supervisor's socket");
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor theirs(ends[1], AtFork::keep);
  pid_ = fork();
  if (pid_ < 0) fail_errno("starting the supervisor");
  if (pid_ == 0) {
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, kSupervisorName);
    run_supervisor(setup, theirs.get());
  }
}

int Supervisor::start(std::span<const WorkerProgram> programs) {
  HVD_ASSERT(more_);
  const int first = started_;
  StartPart part = StartPart::first;
  while (!programs.empty()) {
    const auto some = programs.first(std::min(programs.size(), kMaxProgramsPerMessage));
    if (socket_) send_start(fd(), {Kind::start, started_, static_cast<int32_t>(part)}, some);
    started_ += static_cast<int>(some.size());
    programs = programs.subspan(some.size());
    part = StartPart::further;
    is_empty_ = false;
  }
  return first;
}

void Supervisor::signal(int index, int signal) { send({Kind::signal, index, signal}); }

void Supervisor::signal_all(int signal) { send({Kind::signal_all, 0, signal}); }

void Supervisor::no_more_workers() {
  more_ = false;
  send({Kind::no_more_workers, 0, 0});
  if (is_empty_) end(false);
}

std::optional<SupervisorMessage> Supervisor::receive() {
  while (socket_) {
    SupervisorMessage message{};
    const ssize_t size = recv(fd(), &message, sizeof(message), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    // It ended before reading all of our messages: the kernel reports that once, before its last
    // messages.
    if (size < 0 && errno == ECONNRESET) continue;
    if (size != sizeof(message)) {
      end(true);
      return std::nullopt;
    }
    if (message.kind != Kind::nothing_left) return message;
    if (message.value != started_) continue;
    is_empty_ = true;
    if (!more_) end(false);
    return message;
  }
  return std::nullopt;
}

void Supervisor::send(const SupervisorMessage& message) {
  if (socket_) ::send(fd(), &message, sizeof(message), MSG_NOSIGNAL);
}

void Supervisor::end(bool is_lost) {
  if (!socket_) return;
  socket_.reset();
  is_lost_ = is_lost;
  waitpid(pid_, &wait_status_, 0);
}

}  // namespace hvd::launcher
