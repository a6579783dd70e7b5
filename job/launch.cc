#include "job/launch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/store_server.h"
#include "job/agent.h"
#include "job/caller.h"
#include "job/descendants.h"
#include "job/driver.h"
#include "job/environment.h"
#include "job/last_word.h"
#include "job/output.h"
#include "job/report.h"

namespace hvd::job {
namespace {

constexpr int kAnyPort = 0;
constexpr int kNotStarted = 126;  // as shells say it
constexpr size_t kReadBytes = 64 * KiB;

/// What the loop watches. Pipes have an epoll of their own, so that all can be left alone at once.
enum class Watched : uint64_t { signals, caller, agent, store, pipes, out_console, err_console };

struct Chunk {
  int rank;
  Stream stream;
  std::string bytes;
};

ExitStatus exit_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status)};
}

void watch(int epoll, int fd, uint64_t tag, uint32_t events = EPOLLIN) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("watching a descriptor");
}

/// The job's key in memory that nobody can change. Ranks inherit it; it has no name anywhere.
FileDescriptor sealed_key(const JobKey& key) {
  FileDescriptor file(memfd_create("horovod-key", MFD_CLOEXEC | MFD_ALLOW_SEALING), AtFork::keep);
  const auto size = static_cast<ssize_t>(key.bytes.size());
  if (!file || pwrite(file.get(), key.bytes.data(), key.bytes.size(), 0) != size ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    fail_errno("keeping the job's key");
  return file;
}

/// Two pipes a rank need more descriptors than some shells allow; ranks get the old limit back.
rlimit allow_many_descriptors() {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit all = before;
  all.rlim_cur = all.rlim_max;
  setrlimit(RLIMIT_NOFILE, &all);
  return before;
}

/// A terminal belongs to the foreground: a job in the background must not take the shell's input.
bool may_read_input() { return isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) == getpgrp(); }

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> result;
  result.reserve(environment.size());
  for (const auto& [name, value] : environment) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

class Launch {
 public:
  explicit Launch(const Job& job);
  int run();

 private:
  void watch_signals();
  AgentTask make_task();
  void tell_plan(const Environment& meeting);
  void turn();
  void wait_for_something();
  std::vector<Event> take_signals();
  std::vector<Event> take_agent_messages();
  RankExited not_started(const AgentMessage& message);
  std::vector<Event> take_records();
  std::vector<Chunk> read_pipes();
  bool read_pipe(int rank, Stream stream, std::vector<Chunk>& chunks);
  void show(const std::vector<Chunk>& chunks, const std::set<int>& ranks, bool listed);
  void perform(const std::vector<Action>& actions);
  void announce(const Announce& announce);
  void drain_rank(int rank);
  void signal_all(int signal);
  void agent_lost();
  void watch_consoles();
  int finish(int exit_code);
  TimePoint now() const { return clock_.now(); }

  const Job& job_;
  const int size_;
  SystemClock clock_;
  Driver driver_;
  Output output_;
  ProcessDefaults defaults_;
  FileDescriptor caller_;  ///< of the process that the job ends with, if there is one
  FileDescriptor key_file_;
  FileDescriptor null_;
  std::optional<StoreServer> store_;
  Agent agent_;
  FileDescriptor signals_, events_, pipe_events_;
  std::vector<std::array<FileDescriptor, kStreams>> pipes_;
  std::vector<FileDescriptor> write_ends_;  ///< until the agent has them
  std::set<int> running_;
  std::set<std::string> told_;  ///< keys of last words that have been taken
  std::array<bool, kStreams> console_watched_{};
  bool pipes_watched_ = true;
  bool store_moved_ = false;
  bool start_failed_ = false;
  std::optional<int> exit_code_;
};

Launch::Launch(const Job& job)
    : job_(job),
      size_(static_cast<int>(job.places.size())),
      driver_({.ranks = size_, .grace = job.grace}),
      output_({.ranks = size_,
               .timestamps = job.options.prefix_timestamp,
               .folder = job.options.output_filename,
               .one_terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0},
              STDOUT_FILENO, STDERR_FILENO) {
  defaults_.open_files = allow_many_descriptors();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // if the agent is killed, what it had becomes ours to end
  const auto given = job.options.caller_key;
  const JobKey key = given ? read_caller_key(*given) : make_job_key();
  key_file_ = sealed_key(key);
  null_ = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC), AtFork::keep);
  store_.emplace(key, "127.0.0.1", kAnyPort);
  events_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  pipe_events_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  watch_signals();
  if (job.options.caller) caller_ = open_process(*job.options.caller);
  const AgentTask task = make_task();
  agent_ = start_agent(task);
  write_ends_.clear();
  watch(events_.get(), signals_.get(), static_cast<uint64_t>(Watched::signals));
  if (caller_) watch(events_.get(), caller_.get(), static_cast<uint64_t>(Watched::caller));
  watch(events_.get(), agent_.socket.get(), static_cast<uint64_t>(Watched::agent));
  watch(events_.get(), store_->fd(), static_cast<uint64_t>(Watched::store));
  watch(events_.get(), pipe_events_.get(), static_cast<uint64_t>(Watched::pipes));
}

/// A signal that whoever started us has set to be ignored (nohup) stays ignored.
void Launch::watch_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  sigprocmask(SIG_BLOCK, &watched, &defaults_.signal_mask);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &defaults_.on_broken_pipe);
  signals_ = FileDescriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
}

AgentTask Launch::make_task() {
  AgentTask task{.ranks = {}, .defaults = defaults_};
  Environment common = meeting_variables(job_.environment, job_.options, store_->port());
  if (job_.options.verbose) tell_plan(common);
  common.insert(job_.environment.begin(), job_.environment.end());
  const int input = may_read_input() ? STDIN_FILENO : null_.get();
  pipes_.resize(job_.places.size());
  for (const Place& place : job_.places) {
    Program program{.path = job_.program, .arguments = job_.options.command, .environment = {}};
    Environment all = rank_variables(place);
    all.insert(common.begin(), common.end());
    program.environment = assignments(all);
    std::array<int, kStreams> ends{};
    for (size_t stream = 0; stream < kStreams; ++stream) {
      int pipe[2];
      if (pipe2(pipe, O_CLOEXEC) != 0) fail_errno("making a pipe");
      fcntl(pipe[0], F_SETFL, O_NONBLOCK);
      auto& reading = pipes_[static_cast<size_t>(place.rank)][stream];
      reading = FileDescriptor(pipe[0]);
      watch(pipe_events_.get(), pipe[0], static_cast<uint64_t>(place.rank) * kStreams + stream);
      ends[stream] = write_ends_.emplace_back(pipe[1], AtFork::keep).get();
    }
    program.in = place.rank == 0 ? input : null_.get();
    program.out = ends[0];
    program.err = ends[1];
    program.key = key_file_.get();
    program.key_target = kKeyDescriptor;
    task.ranks.push_back(std::move(program));
    running_.insert(place.rank);
  }
  return task;
}

void Launch::tell_plan(const Environment& meeting) {
  const Place& first = job_.places.front();
  output_.say(fmt::format("{} processes on {}: ranks 0 to {}", size_, first.host, size_ - 1));
  output_.say(
      fmt::format("command: {} (found as {})", fmt::join(job_.options.command, " "), job_.program));
  for (const auto& [name, value] : meeting) output_.say(fmt::format("exports {}={}", name, value));
  for (const auto& [name, value] : job_.options.knobs)
    output_.say(fmt::format("exports {}={} (from a flag or the config file)", name, value));
  output_.say(fmt::format("exports {} to each rank", fmt::join(
                                                         [&] {
                                                           std::vector<std::string> names;
                                                           for (const auto& [name, value] :
                                                                rank_variables(first))
                                                             names.push_back(name);
                                                           return names;
                                                         }(),
                                                         ", ")));
}

int Launch::run() {
  while (!exit_code_) turn();
  return finish(*exit_code_);
}

/// The order matters: what is read first has happened before what is read later was asked for. So a
/// rank's word that it ends because of another one (Store) is known before what it writes about
/// that is shown, and the failure of that other one (agent) is announced before the output of those
/// that follow.
void Launch::turn() {
  wait_for_something();
  const std::vector<Chunk> chunks = read_pipes();
  std::vector<Event> events = take_agent_messages();
  perform(driver_.on(now(), take_records()));
  std::set<int> exited;
  for (const Event& event : events)
    if (const auto* one = std::get_if<RankExited>(&event)) exited.insert(one->rank);
  show(chunks, exited, true);
  for (const int rank : exited) drain_rank(rank);
  for (const Event& event : take_signals()) events.push_back(event);
  perform(driver_.on(now(), std::move(events)));
  show(chunks, exited, false);
  output_.pass(now());
  output_.console(Stream::out).pump();
  output_.console(Stream::err).pump();
  watch_consoles();
}

void Launch::wait_for_something() {
  std::optional<TimePoint> until = driver_.deadline();
  if (const auto other = output_.deadline(); other && (!until || *other < *until)) until = other;
  int timeout = -1;
  if (until) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*until - now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(rest, 0, 1 << 30));
  }
  epoll_event ready[8];
  const int count = epoll_wait(events_.get(), ready, std::size(ready), timeout);
  if (count < 0 && errno != EINTR) fail_errno("waiting for the job");
  store_moved_ = false;
  for (int i = 0; i < count; ++i)
    store_moved_ = store_moved_ || ready[i].data.u64 == static_cast<uint64_t>(Watched::store);
}

std::vector<Event> Launch::take_signals() {
  std::vector<Event> events;
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    output_.say(fmt::format("SIG{}: ending all ranks", sigabbrev_np(signal)));
    events.push_back(Interrupted{signal});
  }
  if (caller_ && has_ended(caller_)) {
    output_.say("the process that started this job is gone; ending all ranks");
    events.emplace_back(std::in_place_type<Interrupted>, SIGTERM);
    caller_.reset();  // closing it ends the watching
  }
  return events;
}

std::vector<Event> Launch::take_agent_messages() {
  std::vector<Event> events;
  while (agent_.socket) {
    AgentMessage message{};
    const ssize_t size = recv(agent_.socket.get(), &message, sizeof(message), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size != sizeof(message)) {
      agent_lost();
      break;
    }
    switch (message.kind) {
      case AgentMessage::Kind::exited:
        events.push_back(RankExited{message.rank, exit_status(message.value)});
        break;
      case AgentMessage::Kind::not_started:
        events.push_back(not_started(message));
        break;
      case AgentMessage::Kind::nothing_left:
        events.push_back(NothingLeft{});
        agent_.socket.reset();
        waitpid(agent_.pid, nullptr, 0);
        break;
      case AgentMessage::Kind::signal_all:
        HVD_ASSERT(false);
    }
  }
  for (const Event& event : events)
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      running_.erase(exited->rank);
      store_moved_ = true;  // its last word may be there
    }
  return events;
}

/// The reason is the same for all ranks: it is told once, and the others count as ended well.
RankExited Launch::not_started(const AgentMessage& message) {
  if (std::exchange(start_failed_, true)) return {message.rank, {}};
  const char* why = message.value == ENOEXEC
                        ? "it is neither a program nor a script that begins with #!"
                        : std::strerror(message.value);
  output_.say(fmt::format("{} could not be started: {}", job_.program, why));
  return {message.rank, {.code = kNotStarted}};
}

std::vector<Event> Launch::take_records() {
  std::vector<Event> events;
  if (!store_moved_) return events;
  store_->step();
  for (const auto& [key, value] : store_->matching(kLastWords)) {
    if (!told_.insert(key).second) continue;
    if (const auto word = parse_last_word(key, as_text(value))) events.push_back(*word);
  }
  return events;
}

std::vector<Chunk> Launch::read_pipes() {
  std::vector<Chunk> chunks;
  if (!pipes_watched_) return chunks;
  epoll_event ready[64];
  const int count = epoll_wait(pipe_events_.get(), ready, std::size(ready), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    read_pipe(static_cast<int>(tag / kStreams), static_cast<Stream>(tag % kStreams), chunks);
  }
  return chunks;
}

/// Reads once; false when there was nothing.
bool Launch::read_pipe(int rank, Stream stream, std::vector<Chunk>& chunks) {
  FileDescriptor& pipe = pipes_[static_cast<size_t>(rank)][static_cast<size_t>(stream)];
  if (!pipe) return false;
  std::string bytes(kReadBytes, '\0');
  const ssize_t size = read(pipe.get(), bytes.data(), bytes.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) pipe.reset();  // closed by the rank and all its children
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  chunks.push_back({rank, stream, std::move(bytes)});
  return size > 0;
}

/// Shows the chunks of the listed ranks, or of all others.
void Launch::show(const std::vector<Chunk>& chunks, const std::set<int>& ranks, bool listed) {
  for (const Chunk& chunk : chunks) {
    if (ranks.contains(chunk.rank) != listed) continue;
    if (chunk.bytes.empty()) {
      output_.ended(chunk.rank, chunk.stream);
    } else {
      output_.received(chunk.rank, chunk.stream, chunk.bytes, now());
    }
  }
}

/// All that a rank wrote before it ended. Its children may go on writing.
void Launch::drain_rank(int rank) {
  for (const Stream stream : {Stream::out, Stream::err}) {
    // A pipe holds 64 KiB unless it was enlarged; who writes faster than this is a child.
    for (int round = 0; round < 16; ++round) {
      std::vector<Chunk> chunks;
      const bool more = read_pipe(rank, stream, chunks);
      show(chunks, {rank}, true);
      if (!more) break;
    }
  }
}

void Launch::perform(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (const auto* announcement = std::get_if<Announce>(&action)) {
      announce(*announcement);
    } else if (const auto* hold = std::get_if<HoldOutput>(&action)) {
      output_.hold(hold->rank);
    } else if (const auto* release = std::get_if<ReleaseOutput>(&action)) {
      output_.release(release->rank);
    } else if (const auto* all = std::get_if<SignalAll>(&action)) {
      signal_all(all->signal);
    } else if (const auto* end = std::get_if<Finish>(&action)) {
      exit_code_ = end->exit_code;
    }
  }
}

void Launch::announce(const Announce& announce) {
  // Of ranks that ended as they were told to, only those that had to be killed are worth a line.
  const bool expected =
      announce.kind == Announce::Kind::stopped && announce.status.signal == SIGTERM;
  if (expected && !job_.options.verbose) return;
  for (const std::string& line : report(announce, output_.tail(announce.rank))) output_.say(line);
}

void Launch::signal_all(int signal) {
  if (job_.options.verbose)
    output_.say(fmt::format("sending SIG{} to what is left", sigabbrev_np(signal)));
  const AgentMessage command{AgentMessage::Kind::signal_all, 0, signal};
  if (agent_.socket) send(agent_.socket.get(), &command, sizeof(command), MSG_NOSIGNAL);
}

void Launch::agent_lost() {
  agent_.socket.reset();
  int status = 0;
  waitpid(agent_.pid, &status, 0);
  output_.say(fmt::format("the supervisor of the ranks {}; ending all ranks",
                          describe(exit_status(status))));
  kill_descendants([](pid_t, int) {});
  exit_code_ = exit_status(status).ok() ? 1 : exit_status(status).shell_code();
}

/// While a console takes nothing, look at it instead of at what would make it fuller.
void Launch::watch_consoles() {
  for (const Stream stream : {Stream::out, Stream::err}) {
    bool& watched = console_watched_[static_cast<size_t>(stream)];
    Console& console = output_.console(stream);
    if (watched == console.has_waiting()) continue;
    const auto tag = stream == Stream::out ? Watched::out_console : Watched::err_console;
    epoll_event event{.events = EPOLLOUT, .data = {.u64 = static_cast<uint64_t>(tag)}};
    epoll_ctl(events_.get(), watched ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, console.fd(), &event);
    watched = !watched;
  }
  if (pipes_watched_ == !output_.is_full()) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<uint64_t>(Watched::pipes)}};
  epoll_ctl(events_.get(), pipes_watched_ ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, pipe_events_.get(),
            &event);
  pipes_watched_ = !pipes_watched_;
}

int Launch::finish(int exit_code) {
  for (int rank = 0; rank < size_; ++rank) {
    drain_rank(rank);
    for (const Stream stream : {Stream::out, Stream::err}) output_.ended(rank, stream);
    output_.release(rank);
  }
  // Whoever does not read what is left may be interrupted the usual way.
  sigprocmask(SIG_SETMASK, &defaults_.signal_mask, nullptr);
  output_.console(Stream::out).drain();
  output_.console(Stream::err).drain();
  return exit_code;
}

}  // namespace

int launch(const Job& job) { return Launch(job).run(); }

}  // namespace hvd::job
