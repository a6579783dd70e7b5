#include "launcher/launch.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "core/transport/store_server.h"
#include "launcher/driver/driver.h"
#include "launcher/driver/last_word.h"
#include "launcher/driver/report.h"
#include "launcher/dump_part.h"
#include "launcher/elastic_part.h"
#include "launcher/file_limit.h"
#include "launcher/launch_events.h"
#include "launcher/links.h"
#include "launcher/process/caller.h"
#include "launcher/process/open_files.h"
#include "launcher/process/own_signals.h"
#include "launcher/start_file.h"
#include "launcher/stopped_part.h"
#include "launcher/stream/input_source.h"
#include "launcher/stream/output.h"

namespace hvd::launcher {
namespace {

constexpr int kAnyPort = 0;
constexpr int kNotStarted = 126;  // as shells report it
constexpr int kNoJob = 1;
constexpr int kOutputLost = 1;  // for a job that ended well otherwise

std::vector<WorkerId> ids_of(const Assignment& assignment) {
  std::vector<WorkerId> ids;
  for (const AssignedWorker& worker : assignment.workers()) ids.push_back(worker.id);
  return ids;
}

DriverOptions driver_options(const Job& job) {
  return {.workers = ids_of(job.assignment),
          .elastic = first_state(job),
          .heartbeat = job.heartbeat,
          .grace = job.grace};
}

class Launch {
 public:
  explicit Launch(const Job& job);
  int run();

 private:
  std::optional<int> assemble();
  bool can_do_without_failed(const std::vector<StartRow>& rows);
  int given_up(const Interrupted& by);
  void start_all(const std::string& store_host);
  void feed_rank_zero();
  void turn();
  void wait_for_something(std::optional<TimePoint> until);
  std::vector<Event> take_signals();
  void pass_on(int signal);
  void suspend();
  void show_dump();
  std::vector<Chunk> take_news(std::vector<Event>& events);
  Event translated(const HostEvent& event);
  WorkerExited not_started(const WorkerNotStarted& event);
  std::vector<Event> take_records();
  void show(const std::vector<Chunk>& chunks, const std::set<WorkerId>& workers, bool listed);
  void perform(const std::vector<Action>& actions);
  void perform(const Announce& announce);
  void perform(const AnnounceHost& announce);
  void perform(const AnnounceEnd& announce) { output_.say(report(announce)); }
  void perform(const AnnounceSilent& announce);
  void perform(const Abandon& abandon);
  void perform(const HoldOutput& hold) { output_.hold(hold.worker); }
  void perform(const ReleaseOutput& release) { output_.release(release.worker); }
  void perform(const RefuseStarts& refuse) {
    store_->refuse_starts(told_to_others(refuse, assignment_, job_.named_host_of(refuse.worker)));
  }
  void perform(const AnnounceShortage& announce) { output_.say(announce.why); }
  void perform(const Explain& explain) {
    if (job_.options.verbose) output_.say("elastic: " + explain.text);
  }
  void perform(const NoMoreWorkers&);
  void perform(const elastic::Say& say) { output_.say(say.line); }
  void perform(const elastic::ExplainWait&) { dump_.value().show_cause(now()); }
  void perform(const LookForStopped& look) { stopped_.value().look(look, now()); }
  void perform(const elastic::Begin& begin);
  void perform(const elastic::Close& close);
  template <class ElasticAction>
  void perform(const ElasticAction& action) {
    elastic_.value().perform(action);
  }
  void perform(const SignalAll& all);
  void end_starts(const std::string& why);
  void perform(const Finish& finish) { exit_code_ = finish.exit_code; }
  void watch_consoles();
  int finish(int exit_code);
  TimePoint now() const { return clock_.now(); }

  Job job_;                ///< its hosts may grow
  Assignment assignment_;  ///< of the current generation
  SystemClock clock_;
  Driver driver_;
  Output output_;
  ProcessDefaults defaults_;
  FileDescriptor caller_;  ///< the process that the job ends with, if any
  const JobKey key_;
  std::optional<StoreServer> store_;
  OwnSignals signals_{defaults_};
  LaunchEvents events_;
  std::optional<Links> links_;
  std::optional<ElasticPart> elastic_;
  std::optional<DumpPart> dump_;                        ///< once ranks are started
  std::optional<StoppedPart> stopped_;                  ///< the same
  std::optional<InputSource> input_;                    ///< while a rank 0 on another host reads it
  std::set<std::pair<std::string, std::string>> told_;  ///< last messages that were processed
  bool output_paused_ = false;
  bool look_at_store_ = false;  ///< there may be new last messages
  bool ranks_started_ = false;
  bool more_workers_ = true;  ///< may be started
  bool start_failed_ = false;
  std::optional<int> exit_code_;
};

Launch::Launch(const Job& job)
    : job_(job),
      assignment_(job.assignment),
      driver_(driver_options(job)),
      output_({.timestamps = job.options.prefix_timestamp,
               .folder = job.options.output_filename,
               .one_terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0},
              STDOUT_FILENO, STDERR_FILENO),
      key_(job.options.caller_key ? read_caller_key(*job.options.caller_key) : make_job_key()) {
  output_.assign(assignment_);
  allow_many_descriptors(defaults_);
  check_open_files(job_, assignment_.size(), defaults_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // if the supervisor is killed, its children become ours
  store_.emplace(key_, job.is_local() ? kLoopback : "", kAnyPort);
  if (job.options.caller) caller_ = open_process(*job.options.caller);
  if (job.options.verbose)
    for (const std::string& line : describe(job, store_->port())) output_.say(line);
  links_.emplace(job_, key_, store_->port(), defaults_);
  for (size_t index = 0; index < links_->size(); ++index)
    events_.watch_link(index, (*links_)[index].fd());
  events_.watch_always(signals_.fd());
  if (caller_) events_.watch_always(caller_.get());
  events_.watch_store(store_->fd());
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

/// Waits until every host is ready, then starts the ranks on all of them. If a host is not ready in
/// time, returns the exit code; no rank has been started anywhere.
std::optional<int> Launch::assemble() {
  const TimePoint deadline = now() + job_.start_timeout;
  while (now() < deadline && !links_->settled()) {
    wait_for_something(deadline);
    for (const Event& event : take_signals())
      if (const auto* stop = std::get_if<Interrupted>(&event)) return given_up(*stop);
    std::vector<Event> none;
    take_news(none);
    if (look_at_store_) store_->step();
  }
  std::vector<StartRow> result = links_->rows();
  for (StartRow& row : result) row = timed_out(std::move(row), job_.start_timeout.count());
  if (const auto& path = job_.options.tell_start; path && !write_start_file(*path, result))
    output_.say(fmt::format("--tell-start: {} cannot be written", *path));
  if (std::ranges::any_of(result, &StartRow::failed) && !can_do_without_failed(result)) {
    for (const std::string& line : start_table(result)) output_.say(line);
    return kNoJob;
  }
  std::string store_host;
  for (const StartRow& row : result) {
    if (store_host.empty()) store_host = row.reached_at;
    if (job_.options.verbose && !row.local)
      output_.say(fmt::format("{} is ready: it reaches this machine at {} through interface {}",
                              row.host, row.reached_at, row.interface));
  }
  start_all(store_host.empty() ? job_.addresses.front() : store_host);
  return std::nullopt;
}

/// An elastic job is started without hosts that are not ready, unless too few are. A host that
/// becomes ready later joins.
bool Launch::can_do_without_failed(const std::vector<StartRow>& rows) {
  for (size_t host = 0; host < rows.size(); ++host) job_.hosts[host].missing = rows[host].failed();
  auto fewer = assignment_without_missing(job_);
  if (!fewer) return false;
  for (const StartRow& row : rows)
    if (row.failed()) output_.say(not_used(row.host, row.problem));
  output_.say(fmt::format("the job starts with {} of {} ranks", fewer->size(), assignment_.size()));
  job_.assignment = assignment_ = *std::move(fewer);
  output_.assign(assignment_);
  driver_ = Driver(driver_options(job_));
  return true;
}

/// No rank has been started, so no signals are needed.
int Launch::given_up(const Interrupted& by) {
  perform(AnnounceEnd{by, SIGTERM, {}});
  return ExitStatus{.signal = by.signal}.shell_code();
}

void Launch::start_all(const std::string& store_host) {
  const std::vector<StartRow> rows = links_->rows();
  for (size_t host = 0; host < rows.size(); ++host) {
    const StartRow& row = rows[host];
    if (!row.warning.empty()) output_.say(fmt::format("{}: {}", row.host, row.warning));
    const auto workers = assignment_.on_host(static_cast<int>(host));
    if (job_.options.verbose && !workers.empty())
      output_.say(
          fmt::format("CPUs of {}: {}", row.host, cpus_text(row, workers.front().ranks.rank)));
  }
  const Address store{store_host, store_->port()};
  links_->start_workers(assignment_.workers(), store);
  ranks_started_ = true;
  dump_.emplace(job_, assignment_, *links_, output_);
  stopped_.emplace(*store_, assignment_, *dump_);
  if (dump_->fd() >= 0) events_.watch_changes(dump_->fd());
  if (job_.elastic) {
    elastic_.emplace(job_, *store_, *links_, output_, events_, store, defaults_);
    perform(driver_.on(now(), {elastic::TimePassed{}}));
  } else {
    perform(NoMoreWorkers{});
  }
  if (job_.host_of(job_.assignment.worker(0)).local) return;
  input_.emplace(STDIN_FILENO);
  events_.watch_changes(input_->fd());
  feed_rank_zero();
}

/// Reads as much as rank 0's host has room for.
void Launch::feed_rank_zero() {
  HostLink& link = links_->rank_zero(job_.assignment);
  for (auto room = link.input_room(); room; room = link.input_room()) {
    const auto bytes = input_->read(*room);
    if (!bytes) return;
    link.give_input(*bytes);
  }
  events_.unwatch_changes(input_->fd());
  input_.reset();
}

/// The order matters. Output and events are read first, then the Store's records, which are
/// processed before them. So a rank's report that it ends because of another rank is processed
/// before the output that it wrote afterwards is shown. The failure of the other rank (an event) is
/// announced before the output of the ranks that follow.
void Launch::turn() {
  std::optional<TimePoint> until = driver_.deadline();
  const auto no_later = [&](std::optional<TimePoint> other) {
    if (other && (!until || *other < *until)) until = other;
  };
  no_later(output_.deadline());
  if (elastic_) no_later(elastic_->deadline());
  no_later(dump_->deadline());
  wait_for_something(until);
  std::vector<Event> events;
  const std::vector<Chunk> chunks = take_news(events);
  perform(driver_.on(now(), take_records()));
  std::set<WorkerId> exited;
  for (const Event& event : events)
    if (const auto* one = std::get_if<WorkerExited>(&event)) exited.insert(one->worker);
  show(chunks, exited, true);
  for (const Event& event : take_signals()) events.push_back(event);
  if (elastic_)
    if (const auto found = elastic_->look_for_hosts(now())) events.emplace_back(*found);
  perform(driver_.on(now(), std::move(events)));
  show(chunks, exited, false);
  dump_->step(now());
  if (const auto answer = stopped_->take()) perform(driver_.on(now(), {WorkersStopped{*answer}}));
  dump_->take_visitors(now());
  output_.pass(now());
  output_.console(Stream::out).pump();
  output_.console(Stream::err).pump();
  watch_consoles();
  if (input_) feed_rank_zero();
}

void Launch::wait_for_something(std::optional<TimePoint> until) {
  events_.wait(until ? std::optional<Duration>(*until - now()) : std::nullopt);
  look_at_store_ = events_.store_moved();
}

std::vector<Event> Launch::take_signals() {
  std::vector<Event> events;
  for (const int signal : signals_.take()) {
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      pass_on(signal);
    } else if (signal == SIGTSTP) {
      suspend();
    } else if (signal == SIGQUIT) {
      show_dump();
    } else {
      events.emplace_back(Interrupted{signal});
    }
  }
  if (caller_ && has_ended(caller_)) {
    events.emplace_back(Interrupted{.signal = SIGTERM, .caller_gone = true});
    caller_.reset();  // closing it removes it from the epoll
  }
  return events;
}

/// The ranks decide what the signal means, for example to save their state.
void Launch::pass_on(int signal) {
  if (!ranks_started_)
    return output_.say(
        fmt::format("{} is ignored: no rank has been started yet", signal_name(signal)));
  perform(SignalAll{signal});
}

/// Ctrl-Z stops the ranks too, which are not in the terminal's session.
void Launch::suspend() {
  links_->signal_all(SIGSTOP);
  signals_.stop_here();
  links_->signal_all(SIGCONT);
}

/// Ctrl-\ shows what the ranks wait for, and the job goes on.
void Launch::show_dump() {
  if (dump_) return dump_->show(now());
  output_.say("SIGQUIT is ignored: no rank has been started yet");
}

std::vector<Chunk> Launch::take_news(std::vector<Event>& events) {
  std::vector<Chunk> chunks;
  for (const size_t index : events_.moved_links()) {
    HostNews news;
    (*links_)[index].take(news);
    if (dump_) dump_->take(news.dumps);
    for (Chunk& chunk : news.output) {
      if (dump_ && chunk.stream == Stream::err) dump_->look_for_stall(chunk.bytes, now());
      chunks.push_back(std::move(chunk));
    }
    for (const HostEvent& event : news.events) {
      events.push_back(translated(event));
      look_at_store_ = true;  // it may hold the last message of a worker that has ended
    }
  }
  return chunks;
}

Event Launch::translated(const HostEvent& event) {
  if (const auto* exited = std::get_if<WorkerExited>(&event)) return *exited;
  if (const auto* missing = std::get_if<WorkerNotStarted>(&event)) return not_started(*missing);
  if (const auto* empty = std::get_if<HostEmpty>(&event)) return NothingLeft{empty->host};
  const auto& gone = std::get<HostGone>(event);
  return HostLost{.host = gone.host, .why = gone.why, .exit_code = gone.exit_code};
}

/// The reason is the same for all workers: it is reported once, and the others count as ended well.
WorkerExited Launch::not_started(const WorkerNotStarted& event) {
  if (std::exchange(start_failed_, true)) return {event.worker, {}};
  output_.say(fmt::format("{} could not be started: {}", job_.command.program,
                          why_not_started(event.error)));
  return {event.worker, {.code = kNotStarted}};
}

std::vector<Event> Launch::take_records() {
  std::vector<Event> events;
  if (!look_at_store_) return events;
  store_->step();
  for (const auto& [key, value] : store_->matching(kLastWords)) {
    if (!told_.emplace(key, as_text(value)).second) continue;
    const auto word = parse_last_word(key, as_text(value));
    if (!word) continue;
    if (const auto ends = worker_ends(*word, assignment_)) events.push_back(*ends);
  }
  if (elastic_)
    for (const Event& event : elastic_->take_requests()) events.push_back(event);
  return events;
}

/// Shows the chunks of the listed workers, or of all other workers.
void Launch::show(const std::vector<Chunk>& chunks, const std::set<WorkerId>& workers,
                  bool listed) {
  for (const Chunk& chunk : chunks) {
    if (workers.contains(chunk.worker) != listed) continue;
    if (chunk.bytes.empty()) {
      output_.ended(chunk.worker, chunk.stream);
    } else {
      output_.received(chunk.worker, chunk.stream, chunk.bytes, now());
    }
  }
}

void Launch::perform(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    std::visit([this](const auto& one) { perform(one); }, action);
}

void Launch::perform(const Announce& announce) {
  // A rank that ended by a signal of the launcher is reported only if it needed SIGKILL.
  const bool expected = announce.kind == Announce::Kind::stopped &&
                        announce.status.shell_code() != ExitStatus{.signal = SIGKILL}.shell_code();
  if (expected && !job_.options.verbose) return;
  const std::string where = job_.named_host_of(announce.worker);
  for (const std::string& line :
       report(announce, assignment_, output_.tail(announce.worker), where))
    output_.say(line);
  if (announce.kind == Announce::Kind::first)
    end_starts(told_to_others(announce, assignment_, where));
}

void Launch::perform(const AnnounceHost& announce) {
  const std::string& name = job_.hosts[static_cast<size_t>(announce.host)].name;
  output_.say(report(announce, assignment_, name));
  if (announce.first) end_starts(told_to_others(announce, assignment_, name));
}

void Launch::perform(const AnnounceSilent& announce) {
  const std::string host = job_.named_host_of(announce.worker);
  output_.say(report(announce, assignment_, host));
  end_starts(told_to_others(announce, assignment_, host));
}

/// Ranks that wait for others in `init` raise an error, as others do in their operations. In an
/// elastic job the decisions tell them.
void Launch::end_starts(const std::string& why) {
  if (!elastic_) store_->abandon_all_jobs(why);
}

void Launch::perform(const Abandon& abandon) {
  for (const int index : abandon.hosts) {
    const JobHost& host = job_.hosts[static_cast<size_t>(index)];
    const auto report = host.local ? report_left_here : report_left_there;
    output_.say(report(host.name, abandon.after));
  }
}

void Launch::perform(const NoMoreWorkers&) {
  if (!std::exchange(more_workers_, false)) return;
  links_->no_more_workers();
  if (elastic_) elastic_->no_more_workers();
}

void Launch::perform(const elastic::Begin& begin) {
  assignment_ = begin.assignment;
  elastic_.value().perform(begin);
}

void Launch::perform(const elastic::Close& close) {
  elastic_.value().perform(close);
  perform(NoMoreWorkers{});
}

void Launch::perform(const SignalAll& all) {
  if (job_.options.verbose)
    output_.say(fmt::format("sending {} to the ranks", signal_name(all.signal)));
  links_->signal_all(all.signal);
}

void Launch::watch_consoles() {
  for (const Stream stream : {Stream::out, Stream::err})
    events_.watch_console(stream, output_.console(stream));
  const bool is_full = output_.is_full();
  if (std::exchange(output_paused_, is_full) != is_full) links_->pause_output(is_full);
}

int Launch::finish(int exit_code) {
  output_.end_all();
  // While the remaining output is written, the user can interrupt the launcher as usual. Signals
  // for the ranks are too late and ignored.
  signals_.give_back();
  const bool complete = output_.finish();
  return exit_code == 0 && !complete ? kOutputLost : exit_code;
}

}  // namespace

int launch(const Job& job) { return Launch(job).run(); }

}  // namespace hvd::launcher
