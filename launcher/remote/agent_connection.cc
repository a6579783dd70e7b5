#include "launcher/remote/agent_connection.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "launcher/driver/report.h"
#include "launcher/options/environment.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadBytes = 64 * KiB;
/// Reads from one agent per turn, so that the other agents get their turn.
constexpr int kReadsAtOnce = 4;
/// How much of ssh's error output is kept.
constexpr size_t kMaxSaidBytes = 16 * KiB;
/// Settings of ssh take about a hundred lines, more with many key files.
constexpr size_t kMaxSettingsBytes = 256 * KiB;

/// Reads a limited amount; the rest is seen in the next turn. Closes the pipe at its end. Returns
/// false if there is nothing to read now.
bool read_some(const FileDescriptor& events, FileDescriptor& pipe,
               const std::function<void(std::string_view)>& each) {
  char bytes[kReadBytes];
  for (int round = 0; pipe && round < kReadsAtOnce; ++round) {
    const ssize_t size = read(pipe.get(), bytes, sizeof(bytes));
    if (size < 0) return false;
    if (size > 0) {
      each({bytes, static_cast<size_t>(size)});
    } else {
      unwatch(events, pipe.get());
      pipe.reset();
    }
  }
  return static_cast<bool>(pipe);
}

}  // namespace

AgentConnection::AgentConnection(std::string host, SshOptions ssh, const Environment& environment,
                                 const ProcessDefaults& defaults)
    : host_(std::move(host)),
      ssh_(std::move(ssh)),
      environment_(assignments(environment)),
      defaults_(defaults),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (ssh_.kubexec.empty()) {
    ask_for_settings();
  } else {
    begin(UnknownHost::as_configured);
  }
}

std::unique_ptr<PipedChild> AgentConnection::start(std::vector<std::string> command) {
  const std::string path = command.front();
  auto child = std::make_unique<PipedChild>(
      Program{.path = path, .arguments = std::move(command), .environment = environment_},
      defaults_);
  for (const int fd : child->readable()) watch(events_, fd);
  return child;
}

void AgentConnection::ask_for_settings() {
  settings_ssh_ = start(settings_command(ssh_, host_));
  settings_ssh_->in.reset();
}

bool AgentConnection::take_settings() {
  const bool ended = has_ended(settings_ssh_->process());  // no output follows
  const bool more = read_some(events_, settings_ssh_->out,
                              [this](std::string_view text) { settings_.append(text); });
  // Ignored: the second ssh prints the same errors.
  read_some(events_, settings_ssh_->err, [](std::string_view) {});
  if (settings_.size() < kMaxSettingsBytes && (more || !ended)) return false;
  for (const int fd : settings_ssh_->readable()) unwatch(events_, fd);
  settings_ssh_.reset();
  begin(unknown_host_by(settings_));
  return true;
}

void AgentConnection::begin(UnknownHost unknown) {
  process_ = start(agent_command(ssh_, host_, unknown));
  to_agent_ = std::make_unique<Console>(process_->in.get());
}

void AgentConnection::take(const std::function<void(const AgentFrame&)>& each) {
  if (over_ || (settings_ssh_ && !take_settings())) return;
  listen_to_ssh();
  const bool ended = has_ended(process_->process());  // no output follows
  bool more = true;
  for (int round = 0; more && round < kReadsAtOnce; ++round) {
    more = receive();
    take_frames(each);
  }
  send();
  if (ended && !more) take_end();
}

/// Returns false if there is nothing to read now.
bool AgentConnection::receive() {
  FileDescriptor& out = process_->out;
  if (!out) return false;
  std::byte bytes[kReadBytes];
  const ssize_t size = read(out.get(), bytes, sizeof(bytes));
  if (size > 0 && broken_.empty()) reader_.add({bytes, static_cast<size_t>(size)});
  if (size == 0) {
    unwatch(events_, out.get());
    out.reset();
  }
  return size > 0;
}

void AgentConnection::listen_to_ssh() {
  read_some(events_, process_->err, [this](std::string_view text) {
    said_.append(text);
    if (said_.size() > 2 * kMaxSaidBytes) said_.erase(0, said_.size() - kMaxSaidBytes);
  });
}

/// Invalid data from another host ends this connection and nothing else.
void AgentConnection::take_frames(const std::function<void(const AgentFrame&)>& each) try {
  while (broken_.empty()) {
    const auto frame = reader_.next();
    if (!frame) return;
    each(*frame);
  }
} catch (const Error& error) {
  break_off(fmt::format("its agent sent invalid data: {}", error.what()));
}

void AgentConnection::break_off(const std::string& why) {
  broken_ = why;
  process_->kill();
}

void AgentConnection::take_end() {
  over_ = true;
  listen_to_ssh();
  const ExitStatus status = exit_status(process_->wait());
  for (const int fd : process_->readable()) unwatch(events_, fd);
  if (std::exchange(send_watched_, false)) unwatch(events_, process_->in.get());

  AgentRefusal& before = end_.before;
  StartRow row = diagnosis(ssh_, host_, status, said_, reader_.noise());
  before = {row.step, std::move(row.problem), std::move(row.advice)};
  const bool spoke = reader_.begun() && broken_.empty();
  if (spoke && before.step < StartStep::agent) before.step = StartStep::agent;
  if (!broken_.empty()) before.problem = broken_;
  if (process_->error() != 0)
    before.problem =
        fmt::format("{} cannot be started: {}", process_->path(), errno_text(process_->error()));
  end_.after = broken_.empty() ? fmt::format("the ssh to it {}", describe(status)) : broken_;
  if (const std::string line = last_line(said_); !line.empty())
    end_.after += fmt::format(": {}", line);
}

void AgentConnection::say(const AgentFrame& frame) {
  if (over_ || !to_agent_) return;
  to_agent_->add(as_text(to_bytes(frame)));
  send();
}

/// Writes what fits into the pipe now; the rest follows when there is room.
void AgentConnection::send() {
  to_agent_->pump();
  if (send_watched_ == to_agent_->has_waiting()) return;
  send_watched_ = !send_watched_;
  if (send_watched_) {
    watch(events_, process_->in.get(), 0, EPOLLOUT);
  } else {
    unwatch(events_, process_->in.get());
  }
}

}  // namespace hvd::launcher
