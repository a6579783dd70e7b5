// PMI-1, as Hydra and Slurm speak it: lines of key=value over an inherited socket, one answer to
// each request. MPI may use the same connection before or after; so it is never told that we are
// done (`finalize` ends it for MPI too) before the process exits, and nothing is read beyond the
// answer. At exit it must be told: Hydra takes an end without it for a failure, and kills the
// others.
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
#include "core/group/bootstrap/introduction.h"
#include "core/group/bootstrap/mpi_in_process.h"
#include "core/group/bootstrap/redact.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr size_t kMaxLineBytes = 8 * KiB;
constexpr int kPatienceAtExitMs = 1000;
using Fields = std::map<std::string, std::string>;

/// "cmd=get_result rc=0 value=v": in any order, with more fields than these.
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
  ino_t socket;  ///< the number may belong to something else by then
};

ino_t socket_at(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// Slurm takes `init` once only, and the connection belongs to the process, not to a job of it. MPI
/// says it again itself, which Hydra answers.
bool is_first_use(int fd) {
  static std::atomic<ino_t> used{0};  // relaxed: one job starts at a time
  const ino_t socket = socket_at(fd);
  return used.exchange(socket, std::memory_order_relaxed) != socket;
}

/// Unless MPI has used the connection, and so ended it. A forked child is not the one to do it.
void finalize(int /*status*/, void* object) {
  const std::unique_ptr<AtExit> end(static_cast<AtExit*>(object));
  if (end->process != ::getpid() || end->socket != socket_at(end->fd)) return;
  if (mpi_in_process() != MpiState::never_started) return;
  constexpr std::string_view kRequest = "cmd=finalize\n";
  if (::send(end->fd, kRequest.data(), kRequest.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  pollfd answer{end->fd, POLLIN, 0};
  ::poll(&answer, 1, kPatienceAtExitMs);  // so that it is read before the connection closes
}

class PmiIntroduction final : public Introduction {
 public:
  explicit PmiIntroduction(const Identity& identity) : identity_(identity) {}

  std::string spread(const std::string& name, const std::string& mine,
                     const StartDeadline& deadline) override {
    if (is_first_use(identity_.meeting_fd)) {
      ::on_exit(finalize,
                new AtExit{identity_.meeting_fd, ::getpid(), socket_at(identity_.meeting_fd)});
      ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    }
    const std::string job = ask("cmd=get_my_kvsname", "my_kvsname", deadline)["kvsname"];
    const std::string place = fmt::format("kvsname={} key={}", job, name);
    if (identity_.rank == 0)
      ask(fmt::format("cmd=put {} value={}", place, mine), "put_result", deadline);
    ask("cmd=barrier_in", "barrier_out", deadline);
    return ask(fmt::format("cmd=get {}", place), "get_result", deadline)["value"];
  }

 private:
  Fields ask(const std::string& request, const std::string& expected,
             const StartDeadline& deadline) {
    send_all(identity_.meeting_fd, as_bytes(request + "\n"), deadline.at,
             "asking the launcher (PMI)");
    const std::string line = read_line(request, deadline);
    Fields fields = read_fields(line);
    if (fields["cmd"] != expected || (fields.contains("rc") && fields["rc"] != "0")) {
      fail(Code::internal, fmt::format("{} answers \"{}\" to \"{}\"", identity_.launcher,
                                       redacted(line), redacted(request)));
    }
    return fields;
  }

  std::string read_line(const std::string& request, const StartDeadline& deadline) {
    std::string line;
    while (line.size() < kMaxLineBytes) {
      if (!wait_until_ready(identity_.meeting_fd, POLLIN, deadline.at)) give_up(request, deadline);
      char next = 0;
      const ssize_t count = ::recv(identity_.meeting_fd, &next, 1, MSG_DONTWAIT);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) fail_errno("reading from the launcher (PMI)");
      if (count == 0) {
        fail(Code::peer_lost, fmt::format("{} has closed its connection (PMI_FD={})",
                                          identity_.launcher, identity_.meeting_fd));
      }
      if (next == '\n') return line;
      line += next;
    }
    fail(Code::internal, fmt::format("{} answers without end", identity_.launcher));
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

std::unique_ptr<Introduction> introduce_by_pmi(const Identity& identity) {
  return std::make_unique<PmiIntroduction>(identity);
}

}  // namespace hvd
