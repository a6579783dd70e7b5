#include "launcher/process/piped_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/transport/process_watch.h"

namespace hvd::launcher {
namespace {

/// Our end never blocks; the other end is for the child.
struct Pipe {
  FileDescriptor ours, theirs;
};

Pipe make_pipe(bool we_read) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("making a pipe");
  const int ours = we_read ? ends[0] : ends[1];
  fcntl(ours, F_SETFL, O_NONBLOCK);
  return {FileDescriptor(ours), FileDescriptor(we_read ? ends[1] : ends[0])};
}

}  // namespace

struct PipedChild::Pipes {
  Pipe in = make_pipe(false), out = make_pipe(true), err = make_pipe(true);

  Program given_to(Program program) const {
    program.in = in.theirs.get();
    program.out = out.theirs.get();
    program.err = err.theirs.get();
    return program;
  }
};

// The child has its own descriptors, so its ends of the pipes are closed here at once.
PipedChild::PipedChild(Program program, const ProcessDefaults& defaults)
    : PipedChild(std::move(program), defaults, Pipes()) {
  // From here on, the destructor runs even if the rest throws.
  if (spawned_.pid() < 0)
    fail(Code::internal,
         fmt::format("{} cannot be started: {}", program_.path, errno_text(spawned_.error())));
  process_ = open_process(spawned_.pid());
}

PipedChild::PipedChild(Program program, const ProcessDefaults& defaults, Pipes pipes)
    : in(std::move(pipes.in.ours)),
      out(std::move(pipes.out.ours)),
      err(std::move(pipes.err.ours)),
      program_(pipes.given_to(std::move(program))),
      defaults_(defaults),
      spawned_(program_, defaults_) {}

PipedChild::~PipedChild() {
  if (reaped_ || spawned_.pid() < 0) return;
  kill();
  wait();
}

void PipedChild::kill() {
  if (!reaped_) ::kill(spawned_.pid(), SIGKILL);
}

int PipedChild::wait() {
  int status = 0;
  while (waitpid(spawned_.pid(), &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return status;
}

}  // namespace hvd::launcher
