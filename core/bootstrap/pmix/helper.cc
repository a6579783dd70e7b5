#include "core/bootstrap/pmix/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/socket.h"

namespace hvd::pmix {
namespace {

constexpr size_t kMaxMessageBytes = 16 * KiB;
constexpr size_t kMaxTextBytes = 4 * KiB;
/// The helper reports a timeout itself; this is how long its report may take after the deadline.
constexpr std::chrono::seconds kReportTimeout{1};
constexpr std::chrono::seconds kExitTimeout{2};
constexpr unsigned kMaxSecondsToEnd = 5;

ByteVector to_bytes(const BroadcastRequest& request) {
  Writer out;
  out.put_text(request.name);
  out.put_text(request.text);
  out.put_text(request.launcher);
  out.put<uint8_t>(request.is_rank_0 ? 1 : 0);
  out.put<int64_t>(request.deadline.at.time_since_epoch().count());
  out.put<int64_t>(request.deadline.allowed.count());
  return out.take();
}

BroadcastRequest read_request(ConstBytes bytes) {
  Reader in(bytes);
  BroadcastRequest request{.name = in.get_text(kMaxTextBytes),
                           .text = in.get_text(kMaxTextBytes),
                           .is_rank_0 = false,
                           .rank_0 = 0,
                           .launcher = in.get_text(kMaxTextBytes),
                           .deadline = StartDeadline(std::chrono::seconds(0))};
  request.is_rank_0 = in.get_bool();
  request.deadline.at = TimePoint(TimePoint::duration(in.get<int64_t>()));
  request.deadline.allowed = std::chrono::seconds(in.get<int64_t>());
  in.finish();
  return request;
}

struct Reply {
  Code code = Code::ok;
  std::string text;  ///< the text of rank 0, or the error
};

ByteVector to_bytes(const Reply& reply) {
  Writer out;
  out.put(reply.code);
  out.put_text(reply.text.substr(0, kMaxTextBytes));
  return out.take();
}

Reply read_reply(ConstBytes bytes) {
  Reader in(bytes);
  Reply reply;
  reply.code = in.get_enum(Code::internal);
  reply.text = in.get_text(kMaxTextBytes);
  in.finish();
  return reply;
}

/// False if the other end is closed.
bool send_message(int socket, const ByteVector& message) {
  return ::send(socket, message.data(), message.size(), MSG_NOSIGNAL) >= 0;
}

/// Blocks. Empty if the other end is closed.
ByteVector receive_message(int socket) {
  ByteVector room(kMaxMessageBytes);
  ssize_t count = 0;
  do {
    count = ::recv(socket, room.data(), room.size(), 0);
  } while (count < 0 && errno == EINTR);
  room.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return room;
}

/// The loop of the helper process.
class Server {
 public:
  Server(int socket, const std::vector<std::string>& library_paths)
      : socket_(socket), library_paths_(library_paths) {}

  [[noreturn]] void run() {
    for (;;) {
      const ByteVector message = receive_message(socket_);
      if (message.empty()) break;
      send_message(socket_, to_bytes(reply_to(message)));
    }
    limit_time_to_end();
    if (session_) session_->finish();
    ::_exit(0);
  }

 private:
  /// A boundary: the error goes to the process that asked.
  Reply reply_to(const ByteVector& message) try {
    const BroadcastRequest request = read_request(message);
    if (!session_) session_.emplace(load_library(library_paths_));
    return {Code::ok, session_->by_publishing(request)};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }

  /// In case the server is gone and PMIx waits for it.
  static void limit_time_to_end() {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(kMaxSecondsToEnd);
    ::sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
  }

  int socket_;
  const std::vector<std::string>& library_paths_;
  std::optional<Session> session_;
};

/// For kernels without close_range, and containers that forbid it.
void close_listed_above(int last_kept) {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);  // "." and ".." become 0, which is kept
    if (fd > last_kept && fd != ::dirfd(folder.get())) found.push_back(fd);
  }
  for (const int fd : found) ::close(fd);
}

/// Replaces them by /dev/null; if they were closed, the next open would get their numbers. Errors
/// of PMIx are reported by the rank, so standard error is not needed.
void detach_standard_descriptors() {
  const int null = ::open("/dev/null", O_RDWR);
  if (null < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  if (null > STDERR_FILENO) ::close(null);
}

/// Closes all descriptors of the program but `socket`, whose new number is returned, and blocks
/// signals: the helper ends when the rank does.
int detach(int socket) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  constexpr int kOwn = STDERR_FILENO + 1;
  if (socket != kOwn) ::dup2(socket, kOwn);
  // glibc has had a function for it since 2.34 only.
  if (::syscall(SYS_close_range, kOwn + 1, ~0U, 0) != 0) close_listed_above(kOwn);
  detach_standard_descriptors();
  return kOwn;
}

[[noreturn]] void serve(int socket, const std::vector<std::string>& library_paths) noexcept {
  Server(detach(socket), library_paths).run();
}

class Helper {
 public:
  bool is_of_this_process() const { return owner_ == ::getpid(); }

  std::string ask(const std::vector<std::string>& library_paths, const BroadcastRequest& request) {
    if (!socket_) start(library_paths);
    if (!send_message(socket_.get(), to_bytes(request))) fail_as_ended();
    if (!wait_until_ready(socket_.get(), POLLIN, request.deadline.at + kReportTimeout)) {
      give_up();
      request.deadline.fail_at("the launcher (PMIx) has not delivered the address of rank 0",
                               kNoRank);
    }
    const ByteVector message = receive_message(socket_.get());
    if (message.empty()) fail_as_ended();
    Reply reply = read_reply(message);
    if (reply.code != Code::ok) fail(reply.code, reply.text);
    return std::move(reply.text);
  }

  /// Called before this process ends. If the rank ended first, the launcher would take that for an
  /// exit without PMIx_Finalize, and the job for failed.
  void end() {
    if (!socket_ || !is_of_this_process()) return;
    ::shutdown(socket_.get(), SHUT_WR);
    const TimePoint until = std::chrono::steady_clock::now() + kExitTimeout;
    if (!wait_until_ready(socket_.get(), POLLIN, until)) ::kill(process_, SIGKILL);
    reap();
  }

 private:
  void start(const std::vector<std::string>& library_paths) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
      fail_errno("socketpair");
    FileDescriptor own(ends[0]), theirs(ends[1], AtFork::keep);
    const pid_t child = ::fork();
    if (child < 0) fail_errno("starting the helper process for PMIx");
    if (child == 0) serve(theirs.get(), library_paths);
    process_ = child;
    socket_ = std::move(own);
  }

  void reap() const {
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  void give_up() {
    ::kill(process_, SIGKILL);
    reap();
    socket_.reset();
  }

  [[noreturn]] void fail_as_ended() {
    give_up();
    fail(Code::internal, "the helper process for PMIx ended unexpectedly");
  }

  FileDescriptor socket_;  ///< to the helper, while there is one
  pid_t process_ = -1;
  const pid_t owner_ = ::getpid();
};

/// The helper of this process, for all its jobs; never destroyed. A forked child starts its own.
Helper& process_helper() {
  static Helper* helper = nullptr;  // one job starts at a time
  if (helper == nullptr || !helper->is_of_this_process()) {
    helper = new Helper;
    ::on_exit([](int, void* object) { static_cast<Helper*>(object)->end(); }, helper);
  }
  return *helper;
}

}  // namespace

std::string publish_by_helper(const std::vector<std::string>& library_paths,
                              const BroadcastRequest& request) {
  return process_helper().ask(library_paths, request);
}

}  // namespace hvd::pmix
