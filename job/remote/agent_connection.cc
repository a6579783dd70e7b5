#include "job/remote/agent_connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "job/driver/report.h"
#include "job/options/environment.h"
#include "job/process/watch.h"

namespace hvd::job {
namespace {

constexpr size_t kReadBytes = 64 * KiB;
/// Of one agent at one time, so that the others are heard too.
constexpr int kReadsAtOnce = 4;
/// What is kept of the complaints of an ssh.
constexpr size_t kMaxSaidBytes = 16 * KiB;

/// Ours never blocks; the other one is for the child, and must be closed once it has it.
struct Pipe {
  FileDescriptor ours, theirs;
};
Pipe make_pipe(bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_errno("making a pipe");
  const int ours = we_read ? ends[0] : ends[1];
  fcntl(ours, F_SETFL, O_NONBLOCK);
  return {FileDescriptor(ours), FileDescriptor(we_read ? ends[1] : ends[0])};
}

}  // namespace

AgentConnection::AgentConnection(std::string host, SshOptions ssh, const Environment& environment,
                                 const ProcessDefaults& defaults)
    : host_(std::move(host)),
      ssh_(std::move(ssh)),
      defaults_(defaults),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  begin(environment);
}

void AgentConnection::begin(const Environment& environment) {
  Pipe in = make_pipe(false), out = make_pipe(true), err = make_pipe(true);
  program_.arguments = agent_command(ssh_, host_);
  program_.path = program_.arguments.front();
  program_.environment = assignments(environment);
  program_.in = in.theirs.get();
  program_.out = out.theirs.get();
  program_.err = err.theirs.get();
  process_ = std::make_unique<Spawned>(program_, defaults_);
  // The child shares our memory but has descriptors of its own: these may be closed here.
  pidfd_ = open_process(process_->pid());
  in_ = std::move(in.ours);
  out_ = std::move(out.ours);
  err_ = std::move(err.ours);
  to_agent_ = std::make_unique<Console>(in_.get());
  for (const FileDescriptor* fd : {&pidfd_, &out_, &err_}) watch(events_, fd->get());
}

AgentConnection::~AgentConnection() {
  if (over_) return;
  kill(process_->pid(), SIGKILL);
  waitpid(process_->pid(), nullptr, 0);
}

void AgentConnection::take(const std::function<void(const AgentFrame&)>& each) {
  if (over_) return;
  listen_to_ssh();
  const bool ended = has_ended(pidfd_);  // nothing is written after this
  bool more = true;
  for (int round = 0; more && round < kReadsAtOnce; ++round) {
    more = receive();
    take_frames(each);
  }
  send();
  if (ended && !more) take_end();
}

/// False when there is nothing now.
bool AgentConnection::receive() {
  if (!out_) return false;
  std::byte bytes[kReadBytes];
  const ssize_t size = read(out_.get(), bytes, sizeof(bytes));
  if (size > 0 && broken_.empty()) reader_.add({bytes, static_cast<size_t>(size)});
  if (size == 0) {
    unwatch(events_, out_.get());
    out_.reset();
  }
  return size > 0;
}

void AgentConnection::listen_to_ssh() {
  char text[4096];
  while (err_) {
    const ssize_t size = read(err_.get(), text, sizeof(text));
    if (size < 0) return;
    if (size == 0) {
      unwatch(events_, err_.get());
      err_.reset();
      return;
    }
    said_.append(text, static_cast<size_t>(size));
    if (said_.size() > 2 * kMaxSaidBytes) said_.erase(0, said_.size() - kMaxSaidBytes);
  }
}

/// A boundary: whatever comes from another host ends this connection and nothing else.
void AgentConnection::take_frames(const std::function<void(const AgentFrame&)>& each) try {
  while (broken_.empty()) {
    const auto frame = reader_.next();
    if (!frame) return;
    each(*frame);
  }
} catch (const Error& error) {
  break_off(fmt::format("what comes from there makes no sense: {}", error.what()));
}

void AgentConnection::break_off(const std::string& why) {
  broken_ = why;
  kill(process_->pid(), SIGKILL);
}

void AgentConnection::take_end() {
  over_ = true;
  listen_to_ssh();
  int wait_status = 0;
  waitpid(process_->pid(), &wait_status, 0);
  const ExitStatus status = exit_status(wait_status);
  for (const FileDescriptor* fd : {&pidfd_, &out_, &err_}) unwatch(events_, fd->get());
  if (std::exchange(send_watched_, false)) unwatch(events_, in_.get());

  AgentRefusal& before = end_.before;
  StartRow row = diagnosis(ssh_, host_, status, said_, reader_.noise());
  before = {row.step, std::move(row.problem), std::move(row.advice)};
  const bool spoke = reader_.begun() && broken_.empty();
  if (spoke && before.step < StartStep::agent) before.step = StartStep::agent;
  if (!broken_.empty()) before.problem = broken_;
  if (process_->error() != 0)
    before.problem = fmt::format("{} cannot be started: {}", program_.path,
                                 std::generic_category().message(process_->error()));
  end_.after = broken_.empty() ? fmt::format("the ssh to it {}", describe(status)) : broken_;
  if (const std::string line = last_line(said_); !line.empty())
    end_.after += fmt::format(": {}", line);
}

void AgentConnection::say(const AgentFrame& frame) {
  if (over_) return;
  to_agent_->add(as_text(to_bytes(frame)));
  send();
}

/// What does not fit into the pipe goes when there is room.
void AgentConnection::send() {
  to_agent_->pump();
  if (send_watched_ == to_agent_->has_waiting()) return;
  send_watched_ = !send_watched_;
  if (send_watched_) {
    watch(events_, in_.get(), 0, EPOLLOUT);
  } else {
    unwatch(events_, in_.get());
  }
}

}  // namespace hvd::job
