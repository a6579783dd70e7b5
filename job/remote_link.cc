#include "job/remote_link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/capi/version.h"
#include "job/report.h"

namespace hvd::job {
namespace {

constexpr size_t kReadBytes = 64 * KiB;
/// Of one host at one time, so that the others are heard too.
constexpr int kReadsAtOnce = 16;
/// What is kept of the complaints of an ssh.
constexpr size_t kMaxSaidBytes = 16 * KiB;

void watch(int epoll, int fd, uint32_t events = EPOLLIN) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("watching a descriptor");
}

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

RemoteLink::RemoteLink(RemotePlan plan, const SshOptions& ssh, const Environment& environment,
                       const ProcessDefaults& defaults)
    : plan_(std::move(plan)),
      ssh_(ssh),
      defaults_(defaults),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      row_{.host = plan_.host} {
  begin(environment);
}

void RemoteLink::begin(const Environment& environment) {
  Pipe in = make_pipe(false), out = make_pipe(true), err = make_pipe(true);
  program_.arguments = agent_command(ssh_, plan_.host);
  program_.path = program_.arguments.front();
  for (const auto& [name, value] : environment) program_.environment.push_back(name + "=" + value);
  program_.in = in.theirs.get();
  program_.out = out.theirs.get();
  program_.err = err.theirs.get();
  process_ = std::make_unique<Spawned>(program_, defaults_);
  // The child shares our memory but has descriptors of its own: these may be closed here.
  pidfd_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process_->pid(), 0)));
  if (!pidfd_) fail_errno("watching ssh");
  in_ = std::move(in.ours);
  out_ = std::move(out.ours);
  err_ = std::move(err.ours);
  to_agent_ = std::make_unique<Console>(in_.get());
  for (const FileDescriptor* fd : {&pidfd_, &out_, &err_}) watch(events_.get(), fd->get());
}

RemoteLink::~RemoteLink() {
  if (over_) return;
  kill(process_->pid(), SIGKILL);
  waitpid(process_->pid(), nullptr, 0);
}

void RemoteLink::take(HostNews& news) {
  if (over_) return;
  listen_to_ssh();
  bool more = true;
  for (int round = 0; more && round < kReadsAtOnce; ++round) {
    more = receive();
    take_frames(news);
  }
  send();
  if (more || over_) return;
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(process_->pid()), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid != 0)
    take_end(news);
}

/// False when there is nothing now.
bool RemoteLink::receive() {
  if (!out_) return false;
  std::byte bytes[kReadBytes];
  const ssize_t size = read(out_.get(), bytes, sizeof(bytes));
  if (size > 0 && broken_.empty()) reader_.add({bytes, static_cast<size_t>(size)});
  if (size == 0) {
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, out_.get(), nullptr);
    out_.reset();
  }
  return size > 0;
}

void RemoteLink::listen_to_ssh() {
  char text[4096];
  while (err_) {
    const ssize_t size = read(err_.get(), text, sizeof(text));
    if (size < 0) return;
    if (size == 0) {
      epoll_ctl(events_.get(), EPOLL_CTL_DEL, err_.get(), nullptr);
      err_.reset();
      return;
    }
    said_.append(text, static_cast<size_t>(size));
    if (said_.size() > 2 * kMaxSaidBytes) said_.erase(0, said_.size() - kMaxSaidBytes);
  }
}

/// A boundary: whatever comes from another host ends this link and nothing else.
void RemoteLink::take_frames(HostNews& news) try {
  while (broken_.empty()) {
    const auto frame = reader_.next();
    if (!frame) return;
    take_frame(*frame, news);
  }
} catch (const Error& error) {
  break_off(fmt::format("what comes from there makes no sense: {}", error.what()));
}

void RemoteLink::break_off(const std::string& why) {
  broken_ = why;
  kill(process_->pid(), SIGKILL);
}

void RemoteLink::take_frame(const AgentFrame& frame, HostNews& news) {
  using Kind = AgentFrame::Kind;
  switch (frame.kind) {
    case Kind::hello:
      return take_hello(read_hello(frame.payload));
    case Kind::ready: {
      AgentReady ready = read_ready(frame.payload);
      row_.step = StartStep::ready;
      row_.reached_at = std::move(ready.store_address);
      row_.interface = std::move(ready.interface);
      row_.cpus = std::move(ready.cpus);
      return;
    }
    case Kind::refused: {
      AgentRefusal refusal = read_refusal(frame.payload);
      row_.step = refusal.step;
      row_.problem = std::move(refusal.problem);
      row_.advice = std::move(refusal.advice);
      return;
    }
    case Kind::output: {
      AgentOutput output = read_output(frame.payload);
      if (!is_ours(output.rank)) Reader::malformed("rank");
      news.output.push_back({output.rank, output.stream, std::move(output.bytes)});
      return;
    }
    case Kind::exited:
    case Kind::not_started: {
      const AgentNumbers numbers = read_numbers(frame.payload);
      if (!is_ours(numbers.first)) Reader::malformed("rank");
      if (frame.kind == Kind::exited) {
        news.events.push_back(RankExited{numbers.first, exit_status(numbers.second)});
      } else {
        news.events.push_back(RankNotStarted{numbers.first, numbers.second});
      }
      return;
    }
    case Kind::input_taken: {
      const AgentNumbers numbers = read_numbers(frame.payload);
      if (numbers.first < 0 || static_cast<size_t>(numbers.first) > input_on_its_way_)
        Reader::malformed("taken input");
      input_on_its_way_ -= static_cast<size_t>(numbers.first);
      input_ended_ = input_ended_ || numbers.second != 0;
      return;
    }
    case Kind::nothing_left:
      empty_ = true;
      news.events.push_back(HostEmpty{});
      return;
    default:
      Reader::malformed("frame of an agent");
  }
}

/// A Setup holds the job's key: it goes only where our own program has answered.
void RemoteLink::take_hello(const AgentHello& hello) {
  if (hello.version != kVersion) {
    row_ = other_version(ssh_, plan_.host, hello.version, kVersion);
    return break_off(row_.problem);
  }
  row_.step = StartStep::program;
  say(AgentFrame::Kind::setup, to_bytes(plan_.setup));
}

void RemoteLink::take_end(HostNews& news) {
  over_ = true;
  listen_to_ssh();
  int wait_status = 0;
  waitpid(process_->pid(), &wait_status, 0);
  const ExitStatus status = exit_status(wait_status);
  for (const FileDescriptor* fd : {&pidfd_, &out_, &err_})
    if (*fd) epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd->get(), nullptr);
  if (std::exchange(send_watched_, false))
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, in_.get(), nullptr);
  if (empty_) return;
  if (!started_) {
    if (row_.failed()) return;
    const bool spoke = reader_.begun() && broken_.empty();
    row_ = diagnosis(ssh_, plan_.host, status, said_, reader_.noise());
    if (spoke && row_.step < StartStep::agent) row_.step = StartStep::agent;
    if (!broken_.empty()) row_.problem = broken_;
    if (process_->error() != 0)
      row_.problem = fmt::format("{} cannot be started: {}", program_.path,
                                 std::generic_category().message(process_->error()));
    return;
  }
  std::string why = broken_.empty() ? fmt::format("the ssh to it {}", describe(status)) : broken_;
  if (const std::string line = last_line(said_); !line.empty()) why += fmt::format(": {}", line);
  news.events.push_back(HostGone{std::move(why), 1});
}

bool RemoteLink::is_ours(int rank) const {
  const int first = plan_.setup.places.front().rank;
  return rank >= first && rank < first + static_cast<int>(plan_.setup.places.size());
}

void RemoteLink::start(const Address&) {
  started_ = true;
  say(AgentFrame::Kind::start, {});
}

void RemoteLink::signal_all(int signal) {
  say(AgentFrame::Kind::signal_all, to_bytes(AgentNumbers{signal, 0}));
}

void RemoteLink::pause_output(bool paused) {
  say(AgentFrame::Kind::pause, to_bytes(AgentNumbers{paused ? 1 : 0, 0}));
}

std::optional<size_t> RemoteLink::input_room() const {
  if (input_ended_ || over_ || !is_ours(0)) return std::nullopt;
  return kInputWindowBytes - input_on_its_way_;
}

void RemoteLink::give_input(std::string_view bytes) {
  HVD_ASSERT(bytes.size() <= input_room());
  input_ended_ = bytes.empty();
  input_on_its_way_ += bytes.size();
  say(AgentFrame::Kind::input, ByteVector(as_bytes(bytes).begin(), as_bytes(bytes).end()));
}

void RemoteLink::say(AgentFrame::Kind kind, ByteVector payload) {
  if (over_) return;
  const ByteVector bytes = to_bytes(AgentFrame{kind, plan_.index, std::move(payload)});
  to_agent_->add(as_text(bytes));
  send();
}

/// What does not fit into the pipe goes when there is room.
void RemoteLink::send() {
  to_agent_->pump();
  if (send_watched_ == to_agent_->has_waiting()) return;
  send_watched_ = !send_watched_;
  epoll_event event{.events = EPOLLOUT, .data = {.fd = in_.get()}};
  epoll_ctl(events_.get(), send_watched_ ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, in_.get(), &event);
}

}  // namespace hvd::job
