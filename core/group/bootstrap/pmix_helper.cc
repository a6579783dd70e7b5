#include "core/group/bootstrap/pmix_helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
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
/// At the deadline the helper says itself what has not come.
constexpr std::chrono::seconds kPatienceWithLastWords{1};
constexpr std::chrono::seconds kPatienceAtExit{2};
constexpr unsigned kMaxSecondsToEnd = 5;

ByteVector to_bytes(const Errand& errand) {
  Writer out;
  out.put_text(errand.name);
  out.put_text(errand.text);
  out.put_text(errand.launcher);
  out.put<uint8_t>(errand.is_rank_0 ? 1 : 0);
  out.put<int64_t>(errand.deadline.at.time_since_epoch().count());
  out.put<int64_t>(errand.deadline.allowed.count());
  return out.take();
}

Errand read_errand(ConstBytes bytes) {
  Reader in(bytes);
  Errand errand{.name = in.get_text(kMaxTextBytes),
                .text = in.get_text(kMaxTextBytes),
                .is_rank_0 = false,
                .rank_0 = 0,
                .launcher = in.get_text(kMaxTextBytes),
                .deadline = StartDeadline(std::chrono::seconds(0))};
  errand.is_rank_0 = in.get_bool();
  errand.deadline.at = TimePoint(TimePoint::duration(in.get<int64_t>()));
  errand.deadline.allowed = std::chrono::seconds(in.get<int64_t>());
  in.finish();
  return errand;
}

struct Reply {
  Code code = Code::ok;
  std::string text;  ///< what was spread, or what is wrong
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

/// False when nobody is there to take it.
bool say(int socket, const ByteVector& message) {
  return ::send(socket, message.data(), message.size(), MSG_NOSIGNAL) >= 0;
}

/// Blocks. Empty when the other end is gone.
ByteVector hear(int socket) {
  ByteVector room(kMaxMessageBytes);
  ssize_t count = 0;
  do {
    count = ::recv(socket, room.data(), room.size(), 0);
  } while (count < 0 && errno == EINTR);
  room.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return room;
}

/// The helper's side of it.
class Servant {
 public:
  Servant(int socket, const std::vector<std::string>& library_paths)
      : socket_(socket), library_paths_(library_paths) {}

  [[noreturn]] void run() {
    for (;;) {
      const ByteVector request = hear(socket_);
      if (request.empty()) break;
      say(socket_, to_bytes(reply_to(request)));
    }
    end_for_certain();
    if (exchange_) exchange_->finish();
    ::_exit(0);
  }

 private:
  /// A boundary, since there is nobody above.
  Reply reply_to(const ByteVector& request) try {
    const Errand errand = read_errand(request);
    if (!exchange_) exchange_.emplace(load_library(library_paths_));
    return {Code::ok, exchange_->by_publishing(errand)};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }

  /// Also when the daemon is gone and PMIx waits for it.
  static void end_for_certain() {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(kMaxSecondsToEnd);
    ::sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
  }

  int socket_;
  const std::vector<std::string>& library_paths_;
  std::optional<Exchange> exchange_;
};

/// Where the kernel has no close_range, or a container forbids it.
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

/// Standard input and output become /dev/null and not free, or what is opened next would take their
/// place. So does standard error: what PMIx has to tell, the rank tells.
void leave_standard_descriptors() {
  const int null = ::open("/dev/null", O_RDWR);
  if (null < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  if (null > STDERR_FILENO) ::close(null);
}

/// What belongs to the program is not to be held open by the helper, and signals are not for it: it
/// ends when the rank does.
int leave_all_behind(int socket) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  constexpr int kOwn = STDERR_FILENO + 1;
  if (socket != kOwn) ::dup2(socket, kOwn);
  if (::close_range(kOwn + 1, ~0U, 0) != 0) close_listed_above(kOwn);
  leave_standard_descriptors();
  return kOwn;
}

[[noreturn]] void serve(int socket, const std::vector<std::string>& library_paths) noexcept {
  Servant(leave_all_behind(socket), library_paths).run();
}

class Helper {
 public:
  bool is_of_this_process() const { return owner_ == ::getpid(); }

  std::string ask(const std::vector<std::string>& library_paths, const Errand& errand) {
    if (!socket_) start(library_paths);
    if (!say(socket_.get(), to_bytes(errand))) end_without_a_word();
    if (!wait_until_ready(socket_.get(), POLLIN, errand.deadline.at + kPatienceWithLastWords)) {
      give_up();
      errand.deadline.fail_at("the launcher (PMIx) has not introduced the ranks", kNoRank);
    }
    const ByteVector message = hear(socket_.get());
    if (message.empty()) end_without_a_word();
    Reply reply = read_reply(message);
    if (reply.code != Code::ok) fail(reply.code, reply.text);
    return std::move(reply.text);
  }

  /// Before this process ends: a rank that ends first would be one that has left without a word to
  /// PMIx, and its job a failure.
  void end() {
    if (!socket_ || !is_of_this_process()) return;
    ::shutdown(socket_.get(), SHUT_WR);
    const TimePoint until = std::chrono::steady_clock::now() + kPatienceAtExit;
    if (!wait_until_ready(socket_.get(), POLLIN, until)) ::kill(process_, SIGKILL);
    reap();
  }

 private:
  void start(const std::vector<std::string>& library_paths) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
      fail_errno("making a pair of sockets");
    FileDescriptor own(ends[0]), theirs(ends[1], AtFork::keep);
    const pid_t child = ::fork();
    if (child < 0) fail_errno("starting a process that speaks to the launcher");
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

  [[noreturn]] void end_without_a_word() {
    give_up();
    fail(Code::internal, "the process that speaks to the launcher (PMIx) ended without a word");
  }

  FileDescriptor socket_;  ///< to the helper, while there is one
  pid_t process_ = -1;
  const pid_t owner_ = ::getpid();
};

/// Of the process, like what the daemon knows of it: it stays from one job to the next, and is
/// never destroyed. That of a process from which this one was forked is left alone.
Helper& the_helper() {
  static Helper* helper = nullptr;  // one job starts at a time
  if (helper == nullptr || !helper->is_of_this_process()) {
    helper = new Helper;
    ::on_exit([](int, void* object) { static_cast<Helper*>(object)->end(); }, helper);
  }
  return *helper;
}

}  // namespace

std::string publish_by_helper(const std::vector<std::string>& library_paths, const Errand& errand) {
  return the_helper().ask(library_paths, errand);
}

}  // namespace hvd::pmix
