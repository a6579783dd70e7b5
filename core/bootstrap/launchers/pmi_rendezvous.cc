// Rendezvous by PMI-1, as Hydra and Slurm speak it: lines of key=value over an inherited socket,
// one answer per request. MPI may use the same connection before or after. Therefore nothing is
// read beyond the answer, and `finalize`, which ends the connection for MPI too, is sent only when
// the process exits. Without it, Hydra takes the exit for a failure and kills the other ranks.
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/bootstrap/launchers/mpi_in_process.h"
#include "core/bootstrap/redact.h"
#include "core/bootstrap/rendezvous.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr size_t kMaxLineBytes = 8 * KiB;
constexpr int kExitTimeoutMs = 1000;
using Fields = std::map<std::string, std::string>;

/// "cmd=get_result rc=0 value=v": fields in any order; unknown ones are allowed.
Fields read_fields(const std::string& line) {
  Fields fields;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) fields[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return fields;
}

struct AtExit {
  int fd;
  pid_t process;
  ino_t socket;  ///< by which it is recognized: `fd` may have been closed and used again
};

ino_t socket_at(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// Slurm accepts `init` only once per connection, which outlives a job of this process. MPI sends
/// it again itself, which Hydra accepts.
bool is_first_use(int fd) {
  static std::atomic<ino_t> used{0};  // relaxed: one job starts at a time
  const ino_t socket = socket_at(fd);
  return used.exchange(socket, std::memory_order_relaxed) != socket;
}

/// Unless MPI has used the connection, and so ended it. Not in a forked child.
void finalize(int /*status*/, void* object) {
  const std::unique_ptr<AtExit> end(static_cast<AtExit*>(object));
  if (end->process != ::getpid() || end->socket != socket_at(end->fd)) return;
  if (mpi_in_process() != MpiState::never_started) return;
  constexpr std::string_view kRequest = "cmd=finalize\n";
  if (::send(end->fd, kRequest.data(), kRequest.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  pollfd answer{end->fd, POLLIN, 0};
  ::poll(&answer, 1, kExitTimeoutMs);  // so that the launcher reads it before the connection closes
}

class PmiRendezvous final : public Rendezvous {
 public:
  explicit PmiRendezvous(const Identity& identity) : identity_(identity) {}

  std::string broadcast(const std::string& name, const std::string& text,
                        const StartDeadline& deadline) override {
    if (is_first_use(identity_.pmi_fd)) {
      ::on_exit(finalize, new AtExit{identity_.pmi_fd, ::getpid(), socket_at(identity_.pmi_fd)});
      ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    }
    const std::string job = ask("cmd=get_my_kvsname", "my_kvsname", deadline)["kvsname"];
    const std::string entry = fmt::format("kvsname={} key={}", job, name);
    if (identity_.rank == 0)
      ask(fmt::format("cmd=put {} value={}", entry, text), "put_result", deadline);
    ask("cmd=barrier_in", "barrier_out", deadline);
    return ask(fmt::format("cmd=get {}", entry), "get_result", deadline)["value"];
  }

 private:
  Fields ask(const std::string& request, const std::string& expected,
             const StartDeadline& deadline) {
    send_all(identity_.pmi_fd, as_bytes(request + "\n"), deadline.at, "asking the launcher (PMI)");
    const std::string line = read_line(request, deadline);
    Fields fields = read_fields(line);
    if (fields["cmd"] != expected || (fields.contains("rc") && fields["rc"] != "0")) {
      fail(Code::internal, fmt::format("{} answered \"{}\" to \"{}\"", identity_.launcher,
                                       redacted(line), redacted(request)));
    }
    return fields;
  }

  std::string read_line(const std::string& request, const StartDeadline& deadline) {
    std::string line;
    while (line.size() < kMaxLineBytes) {
      if (!wait_until_ready(identity_.pmi_fd, POLLIN, deadline.at)) give_up(request, deadline);
      char next = 0;
      const ssize_t count = ::recv(identity_.pmi_fd, &next, 1, MSG_DONTWAIT);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) fail_errno("reading from the launcher (PMI)");
      if (count == 0) {
        fail(Code::peer_lost, fmt::format("{} has closed its connection (PMI_FD={})",
                                          identity_.launcher, identity_.pmi_fd));
      }
      if (next == '\n') return line;
      line += next;
    }
    fail(Code::internal,
         fmt::format("{} sent an answer of more than {} bytes", identity_.launcher, kMaxLineBytes));
  }

  [[noreturn]] void give_up(const std::string& request, const StartDeadline& deadline) {
    if (request != "cmd=barrier_in")
      deadline.fail_at(
          fmt::format("{} has not answered \"{}\"", identity_.launcher, redacted(request)),
          kNoRank);
    deadline.fail_at(
        fmt::format("not all ranks that {} started have called init", identity_.launcher), kNoRank);
  }

  const Identity identity_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_pmi_rendezvous(const Identity& identity) {
  return std::make_unique<PmiRendezvous>(identity);
}

}  // namespace hvd
