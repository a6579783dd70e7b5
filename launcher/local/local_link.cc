#include "launcher/local/local_link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/interfaces.h"
#include "launcher/driver/report.h"
#include "launcher/process/descendants.h"
#include "launcher/process/keeper.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadBytes = 64 * KiB;
/// Pipes that are read in one turn: many workers that write at once add at most 1 MiB before the
/// room is checked again. The kernel lists the pipes that waited longest first.
constexpr size_t kPipesATurn = 16;
constexpr uint64_t kSupervisor = 0, kPipes = 1, kDump = 2;
/// How long to kill what a killed supervisor has left. The kernel kills the workers with it.
constexpr std::chrono::seconds kOrphanPatience{10};

/// Returns the interface of this machine that has the address; "" if there is none.
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
      "{}: signals reach only the ranks and their process groups, and other processes that they "
      "start may outlive the job; mount /proc for this PID namespace: mount -t proc proc /proc",
      hidden);
}

LocalLink::LocalLink(const RankCommand& command, LocalPlan plan, const JobKey& key,
                     const ProcessDefaults& defaults)
    : command_(command),
      plan_(std::move(plan)),
      defaults_(defaults),
      key_(key),
      keeper_(make_keeper_name()),
      null_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      pipe_events_(epoll_create1(EPOLL_CLOEXEC)) {}

void LocalLink::tell_rows(std::vector<StartRow>& rows) const {
  rows[static_cast<size_t>(plan_.host)] = {.host = plan_.host_name,
                                           .local = true,
                                           .step = StartStep::ready,
                                           .cpus = cpus_by_slot(plan_.binding),
                                           .not_bound = plan_.binding.why_not,
                                           .warning = warning_here()};
}

void LocalLink::start_workers(std::span<const AssignedWorker> workers, const Address& store) {
  if (!supervisor_) start_supervisor();
  take_store(store);
  const Environment common = common_variables();
  std::vector<WorkerProgram> programs;
  WriteEnds write_ends;
  for (const AssignedWorker& worker : workers) {
    if (worker.id.host != plan_.host) continue;
    forget_earlier(worker.id);
    programs.push_back(add_worker(started_++, worker, common, write_ends));
  }
  supervisor_->start(programs);
}

void LocalLink::start_supervisor() {
  const CommitGrace grace = commit_grace(command_.environment, plan_.elastic);
  // If the launcher is lost, workers beside it end at once, so that those of other hosts name them.
  const bool may_linger = plan_.is_far || grace.keeps_state;
  supervisor_.emplace(SupervisorSetup{
      .defaults = defaults_,
      .keeper = keeper_,
      .key = key_,
      .workers_commit = grace.when_asked > Duration{},
      .grace = std::chrono::duration_cast<std::chrono::milliseconds>(may_linger ? grace.when_lost
                                                                                : Duration{}),
      .commits_when_lost = grace.keeps_state});
  watch(events_, supervisor_->fd(), kSupervisor);
  if (!paused_) watch(events_, pipe_events_.get(), kPipes);
}

void LocalLink::take_store(const Address& store) {
  plan_.store.store = store;
  if (!plan_.store.one_host && plan_.store.interface.empty())
    plan_.store.interface = interface_with(store.host);
}

Environment LocalLink::common_variables() const {
  Environment common = host_variables(command_.environment, plan_.store);
  common.emplace("HOROVOD_KEY_SOCKET", keeper_);
  common.insert(command_.environment.begin(), command_.environment.end());
  const int threads = plan_.binding.threads;
  if (threads > 0) common.emplace("OMP_NUM_THREADS", fmt::format("{}", threads));
  return common;
}

Environment LocalLink::variables_of(const AssignedWorker& worker, const Environment& common) const {
  if (!plan_.elastic) {
    Environment all = rank_variables(plan_.host_name, worker.ranks);
    all.insert(common.begin(), common.end());
    return all;
  }
  Environment all = common;
  remove_rank(all);
  for (auto& [name, value] : elastic_variables(plan_.host_name, worker))
    all.insert_or_assign(name, value);
  return all;
}

/// Removes the earlier worker of the slot once nothing more can come from it.
void LocalLink::forget_earlier(const WorkerId& worker) {
  std::erase_if(workers_, [&](const auto& entry) {
    return entry.second.id.slot == worker.slot && entry.second.is_over();
  });
}

WorkerProgram LocalLink::add_worker(int index, const AssignedWorker& worker,
                                    const Environment& common, WriteEnds& write_ends) {
  Worker& here = workers_.emplace(index, Worker{.id = worker.id}).first->second;
  Program program{.path = command_.program, .arguments = command_.arguments, .environment = {}};
  program.environment = assignments(variables_of(worker, common));
  std::array<int, kStreams> ends{};
  for (size_t stream = 0; stream < kStreams; ++stream) {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) fail_errno("making a pipe");
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    here.pipes[stream] = FileDescriptor(pipe[0]);
    watch(pipe_events_, pipe[0], static_cast<uint64_t>(index) * kStreams + stream);
    ends[stream] = write_ends.emplace_back(pipe[1]).get();
  }
  const bool reads = worker.reads_input() && plan_.rank_zero_input >= 0;
  program.in = reads ? plan_.rank_zero_input : null_.get();
  program.out = ends[0];
  program.err = ends[1];
  const auto slot = static_cast<size_t>(worker.id.slot);
  if (slot < plan_.binding.cpus.size()) program.cpus = plan_.binding.cpus[slot];
  // In an elastic job the keeper knows a worker by its slot, since its rank may change.
  const int number = plan_.elastic ? worker.id.slot : worker.ranks.rank;
  return {std::move(program), number, worker.ranks.generation};
}

/// Output first: it reads all that a worker wrote before an exit that this call sees.
void LocalLink::take(HostNews& news) {
  if (!paused_) take_output(news.output);
  take_messages(news);
  if (dump_run_) take_dump(news.dumps);
}

/// Its process has a descriptor of its own, so its end is no event of the supervisor.
void LocalLink::take_dump(std::vector<HostDump>& dumps) {
  if (auto text = dump_run_->take()) {
    dumps.push_back({plan_.host, *std::move(text)});
    end_dump_run();
  }
}

void LocalLink::end_dump_run() {
  if (dump_run_) unwatch(events_, dump_run_->fd());  // as of a pipe, below
  dump_run_.reset();
}

/// A dump that cannot be made must not end the job.
void LocalLink::ask_for_dumps(Question question, std::set<int>& hosts) try {
  if (!supervisor_) return;
  hosts.insert(plan_.host);
  if (dump_run_ && dump_run_->question() >= question) return;
  end_dump_run();
  dump_run_.emplace(supervisor_->pid(), question, defaults_);
  watch(events_, dump_run_->fd(), kDump);
} catch (const Error&) {
  dump_run_.reset();
}

void LocalLink::take_output(std::vector<Chunk>& chunks) {
  epoll_event ready[kPipesATurn];
  const int count = epoll_wait(pipe_events_.get(), ready, std::size(ready), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    read_pipe(workers_.at(static_cast<int>(tag / kStreams)), static_cast<Stream>(tag % kStreams),
              chunks);
  }
}

/// Reads once. Returns false if there was nothing.
bool LocalLink::read_pipe(Worker& worker, Stream stream, std::vector<Chunk>& chunks) {
  FileDescriptor& pipe = worker.pipes[static_cast<size_t>(stream)];
  if (!pipe) return false;
  char bytes[kReadBytes];
  const ssize_t size = read(pipe.get(), bytes, sizeof(bytes));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {  // the worker and all its children have closed it
    // Closing does not end the watch while a process that is being started has a copy.
    unwatch(pipe_events_, pipe.get());
    pipe.reset();
  }
  const std::string_view read_now(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  chunks.push_back({worker.id, stream, std::string(read_now)});
  return size > 0;
}

/// Reads all that a worker wrote before it ended. Its children may go on writing.
void LocalLink::drain(Worker& worker, std::vector<Chunk>& chunks) {
  for (const Stream stream : {Stream::out, Stream::err})
    // A pipe holds 64 KiB unless it was enlarged; only a child can write more than this.
    for (int round = 0; round < 16 && read_pipe(worker, stream, chunks); ++round) {
    }
}

void LocalLink::drain_all(std::vector<Chunk>& chunks) {
  for (auto& [index, worker] : workers_) drain(worker, chunks);
}

void LocalLink::take_messages(HostNews& news) {
  if (!supervisor_) return;
  while (const auto message = supervisor_->receive()) take_message(*message, news);
  if (supervisor_->is_lost() && !std::exchange(lost_, true)) supervisor_lost(news);
}

void LocalLink::take_message(const SupervisorMessage& message, HostNews& news) {
  if (message.kind == SupervisorMessage::Kind::nothing_left) {
    drain_all(news.output);
    news.events.push_back(HostEmpty{plan_.host});
    return;
  }
  Worker& worker = workers_.at(message.index);
  switch (message.kind) {
    case SupervisorMessage::Kind::started:
      worker.pid = message.value;
      return;
    case SupervisorMessage::Kind::exited:
      worker.pid = 0;
      drain(worker, news.output);
      news.events.push_back(WorkerExited{worker.id, exit_status(message.value)});
      return;
    case SupervisorMessage::Kind::not_started:
      worker.pid = 0;
      news.events.push_back(WorkerNotStarted{worker.id, message.value});
      return;
    default:
      HVD_ASSERT(false);
  }
}

/// Its children became ours, since we are a subreaper.
void LocalLink::supervisor_lost(HostNews& news) {
  const ExitStatus status = exit_status(supervisor_->wait_status());
  drain_all(news.output);
  Descendants left;
  for (const auto& [index, worker] : workers_)
    if (worker.pid != 0) left.add(worker.pid);
  left.kill_all(kOrphanPatience, [](pid_t, int) {});
  news.events.push_back(HostGone{plan_.host,
                                 fmt::format("the supervisor of the ranks {}", describe(status)),
                                 status.ok() ? 1 : status.shell_code()});
}

void LocalLink::no_more_workers() {
  if (supervisor_) supervisor_->no_more_workers();
}

void LocalLink::signal(const WorkerId& worker, int signal) {
  if (!supervisor_) return;
  for (const auto& [index, one] : workers_)
    if (one.id == worker) supervisor_->signal(index, signal);
}

void LocalLink::signal_all(int signal) {
  if (supervisor_) supervisor_->signal_all(signal);
}

void LocalLink::pause_output(bool paused) {
  if (std::exchange(paused_, paused) == paused || !supervisor_) return;
  if (paused) {
    unwatch(events_, pipe_events_.get());
  } else {
    watch(events_, pipe_events_.get(), kPipes);
  }
}

}  // namespace hvd::launcher
