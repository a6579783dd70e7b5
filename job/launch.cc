#include "job/launch.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "core/transport/store_server.h"
#include "job/driver/driver.h"
#include "job/driver/last_word.h"
#include "job/driver/report.h"
#include "job/links.h"
#include "job/process/caller.h"
#include "job/process/open_files.h"
#include "job/process/watch.h"
#include "job/stream/input_source.h"
#include "job/stream/output.h"

namespace hvd::job {
namespace {

constexpr int kAnyPort = 0;
constexpr int kNotStarted = 126;  // as shells say it
constexpr int kNoJob = 1;

/// What the loop watches; from `links` on, a link each.
enum class Watched : uint64_t { signals, caller, store, out_console, err_console, input, links };

class Launch {
 public:
  explicit Launch(const Job& job);
  int run();

 private:
  void check_open_files() const;
  void watch_signals();
  std::optional<int> assemble();
  void write_start(const std::string& path, const std::vector<StartRow>& rows);
  void start_all(const std::string& store_host);
  void feed_rank_zero();
  void turn();
  void wait_for_something(std::optional<TimePoint> until);
  std::vector<Event> take_signals();
  std::vector<Chunk> take_news(std::vector<Event>& events);
  Event translated(const HostEvent& event);
  RankExited not_started(const RankNotStarted& event);
  std::vector<Event> take_records();
  void show(const std::vector<Chunk>& chunks, const std::set<int>& ranks, bool listed);
  void perform(const std::vector<Action>& actions);
  void perform(const Announce& announce);
  void perform(const AnnounceHost& announce);
  void perform(const Abandon& abandon);
  void perform(const HoldOutput& hold) { output_.hold(hold.rank); }
  void perform(const ReleaseOutput& release) { output_.release(release.rank); }
  void perform(const SignalAll& all);
  void perform(const Finish& finish) { exit_code_ = finish.exit_code; }
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
  const JobKey key_;
  std::optional<StoreServer> store_;
  FileDescriptor signals_, events_;
  std::optional<Links> links_;
  std::set<size_t> moved_links_;      ///< that have something to say
  std::optional<InputSource> input_;  ///< while rank 0 reads it elsewhere
  std::set<std::string> told_;        ///< keys of last words that have been taken
  std::array<bool, kStreams> console_watched_{};
  bool output_paused_ = false;
  bool store_moved_ = false;
  bool start_failed_ = false;
  std::optional<int> exit_code_;
};

Launch::Launch(const Job& job)
    : job_(job),
      size_(job.ranks()),
      driver_({.ranks = size_, .hosts = static_cast<int>(job.hosts.size()), .grace = job.grace}),
      output_({.ranks = size_,
               .timestamps = job.options.prefix_timestamp,
               .folder = job.options.output_filename,
               .one_terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0},
              STDOUT_FILENO, STDERR_FILENO),
      key_(job.options.caller_key ? read_caller_key(*job.options.caller_key) : make_job_key()) {
  allow_many_descriptors(defaults_);
  check_open_files();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // if the supervisor is killed, what it had is ours to end
  store_.emplace(key_, job.is_local() ? kLoopback : "", kAnyPort);
  events_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  watch_signals();
  if (job.options.caller) caller_ = open_process(*job.options.caller);
  if (job.options.verbose)
    for (const std::string& line : describe(job, store_->port())) output_.say(line);
  links_.emplace(job, key_, store_->port(), defaults_);
  for (size_t index = 0; index < links_->size(); ++index)
    watch(events_, (*links_)[index].fd(), static_cast<uint64_t>(Watched::links) + index);
  watch(events_, signals_.get(), static_cast<uint64_t>(Watched::signals));
  if (caller_) watch(events_, caller_.get(), static_cast<uint64_t>(Watched::caller));
  watch(events_, store_->fd(), static_cast<uint64_t>(Watched::store));
}

void Launch::check_open_files() const {
  OpenFiles files{.store_clients = static_cast<size_t>(size_)};
  size_t others = 0;
  for (const JobHost& host : job_.hosts) {
    if (host.local) {
      files.local_ranks += host.places.size();
    } else {
      ++others;
    }
  }
  files.ssh_count = std::min(others, job_.fan_out);
  const std::string shortage = shortage_of(files, defaults_);
  if (!shortage.empty())
    fail(Code::invalid_argument, fmt::format("{}; {}", shortage, more_files_advice()));
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

int Launch::run() {
  if (job_.is_local()) {
    start_all(kLoopback);
  } else if (const auto failed = assemble()) {
    return finish(*failed);
  }
  while (!exit_code_) turn();
  return finish(*exit_code_);
}

/// Waits until every host is ready, then starts the ranks on all of them. Nothing of the job has
/// run anywhere when a host is not ready in time: the exit code, then.
std::optional<int> Launch::assemble() {
  const TimePoint deadline = now() + job_.start_timeout;
  while (now() < deadline && !links_->settled()) {
    wait_for_something(deadline);
    for (const Event& event : take_signals())
      if (const auto* stop = std::get_if<Interrupted>(&event)) return 128 + stop->signal;
    std::vector<Event> none;
    take_news(none);
    if (store_moved_) store_->step();
  }
  std::vector<StartRow> result = links_->rows();
  for (StartRow& row : result) row = timed_out(std::move(row), job_.start_timeout.count());
  if (job_.options.tell_start) write_start(*job_.options.tell_start, result);
  if (std::ranges::any_of(result, &StartRow::failed)) {
    for (const std::string& line : start_table(result)) output_.say(line);
    return kNoJob;
  }
  std::string store_host;
  for (const StartRow& row : result) {
    if (store_host.empty()) store_host = row.reached_at;
    if (job_.options.verbose && !row.local)
      output_.say(fmt::format("{} is ready: it reaches this machine at {} by {}", row.host,
                              row.reached_at, row.interface));
  }
  start_all(store_host);
  return std::nullopt;
}

/// Whoever reads it takes nothing for the whole: half of it is not left there. What
/// was not written to, or is no file, is not ours to remove.
void Launch::write_start(const std::string& path, const std::vector<StartRow>& rows) {
  std::ofstream file(path);
  const bool opened = file.is_open();
  file << start_json(rows);
  file.close();
  if (file) return;
  std::error_code none;
  const auto status = std::filesystem::symlink_status(path, none);
  if (opened && std::filesystem::is_regular_file(status)) unlink(path.c_str());
  output_.say(fmt::format("--tell-start: {} cannot be written", path));
}

void Launch::start_all(const std::string& store_host) {
  for (const StartRow& row : links_->rows()) {
    if (!row.warning.empty()) output_.say(fmt::format("{}: {}", row.host, row.warning));
    if (job_.options.verbose) output_.say(fmt::format("CPUs of {}: {}", row.host, row.cpus));
  }
  links_->start({store_host, store_->port()});
  if (job_.hosts.front().local) return;
  input_.emplace(STDIN_FILENO);
  epoll_event event{.events = EPOLLIN | EPOLLET,
                    .data = {.u64 = static_cast<uint64_t>(Watched::input)}};
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, input_->fd(), &event);  // a file can be read always
  feed_rank_zero();
}

/// As far as there is room where rank 0 is.
void Launch::feed_rank_zero() {
  HostLink& link = links_->rank_zero();
  for (auto room = link.input_room(); room; room = link.input_room()) {
    const auto bytes = input_->read(*room);
    if (!bytes) return;
    link.give_input(*bytes);
  }
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, input_->fd(), nullptr);
  input_.reset();
}

/// The order matters: what is read first has happened before what is read later was asked for. So a
/// rank's word that it ends because of another one (Store) is known before what it writes about
/// that is shown, and the failure of that other one (its host) is announced before the output of
/// those that follow.
void Launch::turn() {
  std::optional<TimePoint> until = driver_.deadline();
  if (const auto other = output_.deadline(); other && (!until || *other < *until)) until = other;
  wait_for_something(until);
  std::vector<Event> events;
  const std::vector<Chunk> chunks = take_news(events);
  perform(driver_.on(now(), take_records()));
  std::set<int> exited;
  for (const Event& event : events)
    if (const auto* one = std::get_if<RankExited>(&event)) exited.insert(one->rank);
  show(chunks, exited, true);
  for (const Event& event : take_signals()) events.push_back(event);
  perform(driver_.on(now(), std::move(events)));
  show(chunks, exited, false);
  output_.pass(now());
  output_.console(Stream::out).pump();
  output_.console(Stream::err).pump();
  watch_consoles();
  if (input_) feed_rank_zero();
}

void Launch::wait_for_something(std::optional<TimePoint> until) {
  int timeout = -1;
  if (until) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*until - now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(rest, 0, 1 << 30));
  }
  epoll_event ready[64];
  const int count = epoll_wait(events_.get(), ready, std::size(ready), timeout);
  if (count < 0 && errno != EINTR) fail_errno("waiting for the job");
  store_moved_ = false;
  moved_links_.clear();
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    store_moved_ = store_moved_ || tag == static_cast<uint64_t>(Watched::store);
    if (tag >= static_cast<uint64_t>(Watched::links))
      moved_links_.insert(tag - static_cast<uint64_t>(Watched::links));
  }
}

std::vector<Event> Launch::take_signals() {
  std::vector<Event> events;
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    output_.say(fmt::format("SIG{}: ending all ranks", sigabbrev_np(signal)));
    events.emplace_back(Interrupted{signal});
  }
  if (caller_ && has_ended(caller_)) {
    output_.say("the process that started this job is gone; ending all ranks");
    events.emplace_back(std::in_place_type<Interrupted>, SIGTERM);
    caller_.reset();  // closing it ends the watching
  }
  return events;
}

std::vector<Chunk> Launch::take_news(std::vector<Event>& events) {
  std::vector<Chunk> chunks;
  for (const size_t index : moved_links_) {
    HostNews news;
    (*links_)[index].take(news);
    for (Chunk& chunk : news.output) chunks.push_back(std::move(chunk));
    for (const HostEvent& event : news.events) {
      events.push_back(translated(event));
      store_moved_ = true;  // the last word of who has ended may be there
    }
  }
  return chunks;
}

Event Launch::translated(const HostEvent& event) {
  if (const auto* exited = std::get_if<RankExited>(&event)) return *exited;
  if (const auto* missing = std::get_if<RankNotStarted>(&event)) return not_started(*missing);
  if (const auto* empty = std::get_if<HostEmpty>(&event)) return NothingLeft{empty->host};
  const auto& gone = std::get<HostGone>(event);
  HostLost lost{.host = gone.host, .ranks = {}, .why = gone.why, .exit_code = gone.exit_code};
  for (const Place& place : job_.hosts[static_cast<size_t>(gone.host)].places)
    lost.ranks.push_back(place.rank);
  return lost;
}

/// The reason is the same for all ranks: it is told once, and the others count as ended well.
RankExited Launch::not_started(const RankNotStarted& event) {
  if (std::exchange(start_failed_, true)) return {event.rank, {}};
  const char* why = std::strerror(event.error);
  if (event.error == ENOEXEC) why = "it is neither a program nor a script that begins with #!";
  if (event.error == EAGAIN)
    why = "no more processes are allowed there: raise ulimit -u, or the pids limit of its cgroup";
  output_.say(fmt::format("{} could not be started: {}", job_.command.program, why));
  return {event.rank, {.code = kNotStarted}};
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

void Launch::perform(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    std::visit([this](const auto& one) { perform(one); }, action);
}

void Launch::perform(const Announce& announce) {
  // Of ranks that ended as they were told to, only those that had to be killed are worth a line.
  const bool expected =
      announce.kind == Announce::Kind::stopped && announce.status.signal == SIGTERM;
  if (expected && !job_.options.verbose) return;
  const std::string where = job_.hosts.size() == 1 ? "" : job_.host_of(announce.rank).name;
  for (const std::string& line : report(announce, output_.tail(announce.rank), where))
    output_.say(line);
}

void Launch::perform(const AnnounceHost& announce) {
  output_.say(report(announce, job_.hosts[static_cast<size_t>(announce.host)].name));
}

void Launch::perform(const Abandon& abandon) {
  for (const int index : abandon.hosts) {
    const JobHost& host = job_.hosts[static_cast<size_t>(index)];
    output_.say(host.local
                    ? fmt::format("processes of the job on {} have not ended after SIGKILL; they "
                                  "wait in the kernel, or cannot be found",
                                  host.name)
                    : fmt::format("host {} does not answer; what runs there ends when it finds "
                                  "that this launcher is gone",
                                  host.name));
  }
}

void Launch::perform(const SignalAll& all) {
  if (job_.options.verbose)
    output_.say(fmt::format("sending SIG{} to what is left", sigabbrev_np(all.signal)));
  links_->signal_all(all.signal);
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
  if (output_paused_ == output_.is_full()) return;
  output_paused_ = output_.is_full();
  links_->pause_output(output_paused_);
}

int Launch::finish(int exit_code) {
  for (int rank = 0; rank < size_; ++rank) {
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
