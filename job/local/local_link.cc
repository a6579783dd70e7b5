#include "job/local/local_link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/interfaces.h"
#include "job/driver/report.h"
#include "job/process/descendants.h"
#include "job/process/watch.h"

namespace hvd::job {
namespace {

constexpr size_t kReadBytes = 64 * KiB;
/// Pipes that are read in one turn, so that many ranks that write at once bring 1 MiB and not more
/// before somebody looks whether there is room. The kernel lists those first that waited longest.
constexpr size_t kPipesATurn = 16;
constexpr uint64_t kSupervisor = 0, kPipes = 1;
/// For what a supervisor that was killed has left. The ranks end with it, by the kernel.
constexpr std::chrono::seconds kOrphanPatience{10};

/// The job's key in memory that nobody can change. Ranks inherit it; it has no name anywhere.
FileDescriptor sealed_key(const JobKey& key) {
  FileDescriptor file(memfd_create("horovod-key", MFD_CLOEXEC | MFD_ALLOW_SEALING), AtFork::keep);
  const auto size = static_cast<ssize_t>(key.bytes.size());
  if (!file || pwrite(file.get(), key.bytes.data(), key.bytes.size(), 0) != size ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    fail_errno("keeping the job's key");
  return file;
}

/// The interface of this machine that has the address; "" when none has.
std::string interface_with(const std::string& address) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.host == address) return one.interface_name;
  return "";
}

}  // namespace

std::string warning_here() {
  const std::string hidden = why_descendants_are_hidden();
  if (hidden.empty()) return hidden;
  return fmt::format(
      "{}: signals reach the ranks and their process groups only, and other processes that they "
      "start may outlive the job; mount it for this namespace: mount -t proc proc /proc",
      hidden);
}

LocalLink::LocalLink(const RankCommand& command, LocalPlan plan, const JobKey& key,
                     const ProcessDefaults& defaults)
    : command_(command),
      plan_(std::move(plan)),
      defaults_(defaults),
      key_file_(sealed_key(key)),
      null_(open("/dev/null", O_RDONLY | O_CLOEXEC), AtFork::keep),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      pipe_events_(epoll_create1(EPOLL_CLOEXEC)) {}

void LocalLink::tell_rows(std::vector<StartRow>& rows) const {
  rows[static_cast<size_t>(plan_.host)] = {.host = plan_.places.front().host,
                                           .local = true,
                                           .step = StartStep::ready,
                                           .cpus = describe(plan_.binding, plan_.places),
                                           .warning = warning_here()};
}

void LocalLink::start(const Address& store) {
  HVD_ASSERT(!supervisor_.socket && supervisor_.pid < 0);
  plan_.meeting.store = store;
  if (!plan_.meeting.one_host && plan_.meeting.interface.empty())
    plan_.meeting.interface = interface_with(store.host);
  Environment common = meeting_variables(command_.environment, plan_.meeting);
  common.insert(command_.environment.begin(), command_.environment.end());
  const int threads = plan_.binding.threads;
  if (threads > 0) common.emplace("OMP_NUM_THREADS", fmt::format("{}", threads));
  SupervisorTask task{.programs = {}, .defaults = defaults_};
  pipes_.resize(plan_.places.size());
  running_.resize(plan_.places.size());
  for (const Place& place : plan_.places) add_program(task, place, common);
  supervisor_ = start_supervisor(task);
  write_ends_.clear();
  watch(events_, supervisor_.socket.get(), kSupervisor);
  if (!paused_) watch(events_, pipe_events_.get(), kPipes);
}

void LocalLink::add_program(SupervisorTask& task, const Place& place, const Environment& common) {
  const size_t index = task.programs.size();
  Program program{.path = command_.program, .arguments = command_.arguments, .environment = {}};
  Environment all = rank_variables(place);
  all.insert(common.begin(), common.end());
  program.environment = assignments(all);
  std::array<int, kStreams> ends{};
  for (size_t stream = 0; stream < kStreams; ++stream) {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) fail_errno("making a pipe");
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    pipes_[index][stream] = FileDescriptor(pipe[0]);
    watch(pipe_events_, pipe[0], index * kStreams + stream);
    ends[stream] = write_ends_.emplace_back(pipe[1], AtFork::keep).get();
  }
  const bool reads = place.rank == 0 && plan_.rank_zero_input >= 0;
  program.in = reads ? plan_.rank_zero_input : null_.get();
  program.out = ends[0];
  program.err = ends[1];
  program.key = key_file_.get();
  program.key_target = kKeyDescriptor;
  if (!plan_.binding.cpus.empty()) program.cpus = plan_.binding.cpus[index];
  task.programs.push_back(std::move(program));
}

/// Output first: what a rank wrote before its end that is seen here is then read before.
void LocalLink::take(HostNews& news) {
  if (!paused_) take_output(news.output);
  take_messages(news);
}

void LocalLink::take_output(std::vector<Chunk>& chunks) {
  epoll_event ready[kPipesATurn];
  const int count = epoll_wait(pipe_events_.get(), ready, std::size(ready), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    read_pipe(tag / kStreams, static_cast<Stream>(tag % kStreams), chunks);
  }
}

/// Reads once; false when there was nothing.
bool LocalLink::read_pipe(size_t index, Stream stream, std::vector<Chunk>& chunks) {
  FileDescriptor& pipe = pipes_[index][static_cast<size_t>(stream)];
  if (!pipe) return false;
  char bytes[kReadBytes];
  const ssize_t size = read(pipe.get(), bytes, sizeof(bytes));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) pipe.reset();  // closed by the rank and all its children
  const std::string_view read_now(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  chunks.push_back({plan_.places[index].rank, stream, std::string(read_now)});
  return size > 0;
}

/// All that a rank wrote before it ended. Its children may go on writing.
void LocalLink::drain(size_t index, std::vector<Chunk>& chunks) {
  for (const Stream stream : {Stream::out, Stream::err})
    // A pipe holds 64 KiB unless it was enlarged; who writes faster than this is a child.
    for (int round = 0; round < 16 && read_pipe(index, stream, chunks); ++round) {
    }
}

void LocalLink::take_messages(HostNews& news) {
  while (supervisor_.socket) {
    SupervisorMessage message{};
    const ssize_t size = recv(supervisor_.socket.get(), &message, sizeof(message), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size != sizeof(message)) return supervisor_lost(news);
    take_message(message, news);
  }
}

void LocalLink::take_message(const SupervisorMessage& message, HostNews& news) {
  const auto index = static_cast<size_t>(message.index);
  switch (message.kind) {
    case SupervisorMessage::Kind::started:
      running_[index] = message.value;
      return;
    case SupervisorMessage::Kind::exited:
      running_[index] = 0;
      drain(index, news.output);
      news.events.push_back(RankExited{plan_.places[index].rank, exit_status(message.value)});
      return;
    case SupervisorMessage::Kind::not_started:
      running_[index] = 0;
      news.events.push_back(RankNotStarted{plan_.places[index].rank, message.value});
      return;
    case SupervisorMessage::Kind::nothing_left:
      for (size_t place = 0; place < pipes_.size(); ++place) drain(place, news.output);
      news.events.push_back(HostEmpty{plan_.host});
      supervisor_.socket.reset();
      waitpid(supervisor_.pid, nullptr, 0);
      return;
    case SupervisorMessage::Kind::signal_all:
      HVD_ASSERT(false);
  }
}

/// What it had became ours to end, since we are a subreaper.
void LocalLink::supervisor_lost(HostNews& news) {
  supervisor_.socket.reset();
  int wait_status = 0;
  waitpid(supervisor_.pid, &wait_status, 0);
  const ExitStatus status = exit_status(wait_status);
  for (size_t place = 0; place < pipes_.size(); ++place) drain(place, news.output);
  Descendants left;
  for (const pid_t rank : running_)
    if (rank != 0) left.add(rank);
  left.kill_all(kOrphanPatience, [](pid_t, int) {});
  news.events.push_back(HostGone{plan_.host,
                                 fmt::format("the supervisor of the ranks {}", describe(status)),
                                 status.ok() ? 1 : status.shell_code()});
}

void LocalLink::signal_all(int signal) {
  const SupervisorMessage command{SupervisorMessage::Kind::signal_all, 0, signal};
  if (supervisor_.socket) send(supervisor_.socket.get(), &command, sizeof(command), MSG_NOSIGNAL);
}

void LocalLink::pause_output(bool paused) {
  if (std::exchange(paused_, paused) == paused || supervisor_.pid < 0) return;
  if (paused) {
    unwatch(events_, pipe_events_.get());
  } else {
    watch(events_, pipe_events_.get(), kPipes);
  }
}

}  // namespace hvd::job
