#include "launcher/remote/agent.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <set>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/version.h"
#include "core/transport/interfaces.h"
#include "launcher/driver/report.h"
#include "launcher/local/local_link.h"
#include "launcher/process/command.h"
#include "launcher/process/open_files.h"
#include "launcher/remote/agent_branches.h"
#include "launcher/remote/agent_frames.h"
#include "launcher/remote/connect_back.h"
#include "launcher/stream/console.h"
#include "launcher/stream/input_pipe.h"

namespace hvd::launcher {
namespace {

using Kind = AgentFrame::Kind;

/// How long a launcher whose host is cut off may be silent before it counts as lost, roughly.
constexpr std::chrono::seconds kLauncherTimeout{60};
constexpr int kBroken = 1;

class Agent {
 public:
  Agent();
  int run();

 private:
  void greet();
  void wait();
  void take_input();
  void take_frame(const AgentFrame& frame);
  void prepare(AgentSetup setup);
  std::vector<std::string> allowed_interfaces() const;
  void connect_back();
  void look_for_launcher();
  void leave_if_asked();
  void start(AgentStart start);
  void signal_worker(const AgentWorkerNumber& number);
  void no_more_workers();
  void dump(Question question);
  void pass_on();
  void tell(const WorkerExited& exited);
  void tell(const WorkerNotStarted& missing);
  void tell(const HostEmpty& empty);
  void tell(const HostGone& gone);
  void feed_rank_zero();
  void watch_launcher();
  void say(const AgentFrame& frame);
  void say(Kind kind, ByteVector payload);
  void refuse(StartStep step, const std::string& problem, std::vector<std::string> advice);

  ProcessDefaults defaults_ = current_defaults();
  Console out_{STDOUT_FILENO};
  AgentFrameReader reader_{false};
  uint32_t host_ = kNoHost;  ///< this agent's host number
  AgentSetup setup_;
  RankCommand command_;
  Binding binding_;
  TimePoint give_up_at_ = TimePoint::max();
  std::optional<ConnectBack> connecting_;
  WayBack way_;  ///< its connection shows when the launcher's host is lost
  std::optional<LocalLink> link_;
  int32_t started_ = 0;  ///< how many workers were started so far
  bool more_ = true;     ///< more workers may come
  bool empty_ = true;    ///< no process is left here
  AgentBranches branches_{defaults_, [this](const AgentFrame& frame) { say(frame); }};
  std::optional<InputPipe> input_;  ///< as long as a worker here reads it
  int64_t output_room_ = 0;         ///< bytes that the launcher accepts; negative: it got more
  FileDescriptor asked_;            ///< readable after SIGTERM
  std::optional<TimePoint> leave_until_;  ///< after SIGTERM: for the workers to reach a commit
  std::optional<int> exit_code_;
};

TimePoint now() { return std::chrono::steady_clock::now(); }

Agent::Agent() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  // `pkill -USR1 horovodrun` is meant for the ranks, but reaches agents too.
  sigset_t of_ranks;
  sigemptyset(&of_ranks);
  for (const int signal : {SIGUSR1, SIGUSR2}) sigaddset(&of_ranks, signal);
  sigprocmask(SIG_BLOCK, &of_ranks, nullptr);
  // Of a pod or host that is about to end.
  sigset_t leave;
  sigemptyset(&leave);
  sigaddset(&leave, SIGTERM);
  sigprocmask(SIG_BLOCK, &leave, nullptr);
  asked_ = FileDescriptor(signalfd(-1, &leave, SFD_CLOEXEC | SFD_NONBLOCK));
  allow_many_descriptors(defaults_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int Agent::run() {
  greet();
  while (!exit_code_) {
    wait();
    if (connecting_) look_for_launcher();
    if (link_) pass_on();
    if (input_) feed_rank_zero();
    branches_.take();
    watch_launcher();
    if (empty_ && !more_ && branches_.over()) exit_code_ = 0;
    leave_if_asked();
    out_.pump();
    if (link_) link_->pause_output(output_room_ <= 0);
  }
  if (*exit_code_ == 0) out_.drain();  // otherwise there may be no reader
  return *exit_code_;
}

void Agent::greet() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  out_.add(kAgentPreamble);
  say(Kind::hello, to_bytes(AgentHello{kVersion, name}));
  out_.pump();
}

void Agent::wait() {
  std::array<pollfd, 8> watched{{
      {STDIN_FILENO, POLLIN, 0},
      {out_.has_waiting() ? out_.fd() : -1, POLLOUT, 0},
      {connecting_ ? connecting_->fd() : -1, POLLIN, 0},
      {link_ ? link_->fd() : -1, POLLIN, 0},
      {way_.socket.get(), POLLIN, 0},
      {input_ ? input_->fd() : -1, POLLOUT, 0},
      {branches_.fd(), POLLIN, 0},
      {asked_.get(), POLLIN, 0},
  }};
  TimePoint until = connecting_ ? give_up_at_ : TimePoint::max();
  if (connecting_) until = std::min(until, connecting_->deadline().value_or(until));
  if (leave_until_) until = std::min(until, *leave_until_);
  int timeout = -1;
  if (until != TimePoint::max())
    timeout = static_cast<int>(
        std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now()).count()));
  if (poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR)
    fail_errno("waiting for the launcher");
  if (watched[0].revents != 0) take_input();
}

/// The input ends if the launcher or the ssh ends. The supervisor then ends all processes here,
/// after the time that they have to say what they saw.
void Agent::take_input() {
  std::array<std::byte, 64 * KiB> bytes;
  const ssize_t size = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) {
    exit_code_ = kBroken;
    return;
  }
  reader_.add(ConstBytes(bytes).first(static_cast<size_t>(size)));
  while (const auto frame = reader_.next()) take_frame(*frame);
}

void Agent::take_frame(const AgentFrame& frame) {
  if (host_ != kNoHost && frame.host != host_) {
    if (!branches_.pass_down(frame)) Reader::malformed("host");
    return;
  }
  switch (frame.kind) {
    case Kind::setup:
      host_ = frame.host;
      return prepare(read_setup(frame.payload));
    case Kind::reach:
      return branches_.reach(read_reach(frame.payload));
    case Kind::start_workers:
      return start(read_start(frame.payload));
    case Kind::no_more_workers:
      return no_more_workers();
    case Kind::dump:
      return dump(read_question(frame.payload));
    case Kind::signal_worker:
      return signal_worker(read_worker_number(frame.payload));
    case Kind::signal_all:
      if (link_) link_->signal_all(read_numbers(frame.payload).first);
      return;
    case Kind::output_room:
      output_room_ += read_numbers(frame.payload).first;
      return;
    case Kind::input:  // late input is dropped
      if (input_) input_->add(as_text(frame.payload));
      return;
    default:
      Reader::malformed("frame of the launcher");
  }
}

void Agent::prepare(AgentSetup setup) {
  if (!setup_.command.empty()) Reader::malformed("second setup");
  setup_ = std::move(setup);
  if (chdir(setup_.folder.c_str()) != 0)
    return refuse(
        StartStep::program,
        fmt::format("the working folder {} cannot be entered: {}", setup_.folder,
                    errno_text(errno)),
        {"create it on that host with the job's files, or start the job in a folder that all hosts "
         "share"});
  FoundCommand found = find_command(setup_.command, setup_.environment);
  if (!found.problem.empty())
    return refuse(
        StartStep::program, found.problem,
        {fmt::format("PATH used there (copied from this machine): {}", path_of(setup_.environment)),
         "install the same programs at the same paths on all hosts"});
  command_ = {.program = std::move(found.program),
              .arguments = setup_.command,
              .environment = setup_.environment};
  binding_ = binding_here(static_cast<int>(setup_.slots), setup_.binding);
  if (is_refused(binding_, setup_.binding))
    return refuse(StartStep::program, binding_.why_not, {std::string(kNotBoundAdvice)});
  if (const std::string shortage = shortage_of({.local_ranks = setup_.slots}, defaults_);
      !shortage.empty())
    return refuse(StartStep::program, shortage, {more_files_advice()});
  connect_back();
}

/// Returns the interfaces that the user allows and that this host has.
std::vector<std::string> Agent::allowed_interfaces() const {
  std::vector<std::string> allowed;
  for (const InterfaceAddress& one : interface_addresses())
    if (std::ranges::find(setup_.interfaces, one.interface_name) != setup_.interfaces.end())
      allowed.push_back(one.interface_name);
  return allowed;
}

/// SSH_CONNECTION begins with the address from which ssh came.
void Agent::connect_back() {
  ConnectBackPlan plan{.addresses = setup_.store_addresses,
                       .port = setup_.store_port,
                       .first = {},
                       .interfaces = allowed_interfaces()};
  if (plan.interfaces.empty() && !setup_.interfaces.empty()) {
    std::string names;
    for (const std::string& name : setup_.interfaces) names += " " + name;
    return refuse(
        StartStep::connect_back,
        fmt::format("none of the interfaces of --network-interfaces is up there:{}", names),
        {"name interfaces of all hosts: horovodrun --network-interfaces A,B ..."});
  }
  const Environment own = process_environment();
  if (const auto from = own.find("SSH_CONNECTION"); from != own.end())
    plan.first = from->second.substr(0, from->second.find(' '));
  give_up_at_ = now() + std::chrono::seconds(setup_.start_timeout_seconds);
  connecting_.emplace(std::move(plan), setup_.key);
}

void Agent::look_for_launcher() {
  if (auto way = connecting_->step(now())) {
    way_ = *std::move(way);
    connecting_.reset();
    tune_tcp(way_.socket, kLauncherTimeout);
    say(Kind::ready, to_bytes(AgentReady{way_.address, way_.interface, cpus_by_slot(binding_),
                                         binding_.why_not, warning_here()}));
  } else if (connecting_->failed() || now() >= give_up_at_) {
    std::vector<std::string> advice = connecting_->told();
    advice.emplace_back(
        "allow TCP from that host to this one (check firewalls), or name the interface that "
        "connects both: horovodrun --network-interfaces NAME ...");
    connecting_.reset();
    refuse(StartStep::connect_back, "the launcher was not reached at any of its addresses",
           std::move(advice));
  }
}

/// The workers leave at a commit, if the job goes on without them or has a state folder.
void Agent::leave_if_asked() {
  signalfd_siginfo signal{};
  if (!leave_until_ && read(asked_.get(), &signal, sizeof(signal)) > 0) {
    const Duration grace = commit_grace(setup_.environment, setup_.elastic).when_asked;
    leave_until_ = now() + grace;
    if (link_) link_->signal_all(SIGTERM);
  }
  if (leave_until_ && (empty_ || now() >= *leave_until_)) exit_code_ = kShellSignal + SIGTERM;
}

/// A host that is about to end starts no more workers.
void Agent::start(AgentStart start) {
  if (way_.address.empty() || !more_) Reader::malformed("start of workers");
  if (leave_until_) return;
  for (AssignedWorker& worker : start.workers) {
    // In an elastic job, a host may get more slots than it had. Their workers are not bound.
    if (!setup_.elastic && worker.id.slot >= static_cast<int>(setup_.slots))
      Reader::malformed("slot");
    worker.id.host = static_cast<int>(host_);
  }
  if (!link_) {
    LocalPlan plan{.host = static_cast<int>(host_), .host_name = setup_.host_name};
    plan.store.interfaces = setup_.interfaces;
    plan.store.interface = way_.interface;
    plan.store.one_host = false;
    plan.elastic = setup_.elastic;
    plan.is_far = true;
    if (std::ranges::any_of(start.workers, &AssignedWorker::reads_input))
      plan.rank_zero_input = input_.emplace().read_end();
    plan.binding = std::move(binding_);
    link_.emplace(command_, std::move(plan), setup_.key, defaults_);
  }
  empty_ = false;
  started_ += static_cast<int32_t>(start.workers.size());
  link_->start_workers(start.workers, {way_.address, setup_.store_port});
  if (input_) input_->let_go();
}

void Agent::signal_worker(const AgentWorkerNumber& number) {
  if (link_)
    link_->signal({static_cast<int>(host_), number.slot, number.incarnation}, number.number);
}

void Agent::no_more_workers() {
  more_ = false;
  if (link_) link_->no_more_workers();
}

void Agent::dump(Question question) {
  std::set<int> hosts;
  if (link_) link_->ask_for_dumps(question, hosts);
  if (hosts.empty()) say(Kind::dumped, {});
}

void Agent::pass_on() {
  HostNews news;
  link_->take(news);
  for (Chunk& chunk : news.output) {
    output_room_ -= static_cast<int64_t>(chunk.bytes.size());
    say(Kind::output, to_bytes(AgentOutput{chunk.worker.slot, chunk.worker.incarnation,
                                           chunk.stream, std::move(chunk.bytes)}));
  }
  for (const HostDump& dump : news.dumps) {
    const ConstBytes text = as_bytes(dump.text);
    say(Kind::dumped, ByteVector(text.begin(), text.end()));
  }
  for (const HostEvent& event : news.events)
    std::visit([this](const auto& one) { tell(one); }, event);
}

void Agent::tell(const WorkerExited& exited) {
  say(Kind::exited, to_bytes(AgentWorkerNumber{exited.worker.slot, exited.worker.incarnation,
                                               wait_status(exited.status)}));
}

void Agent::tell(const WorkerNotStarted& missing) {
  say(Kind::not_started,
      to_bytes(AgentWorkerNumber{missing.worker.slot, missing.worker.incarnation, missing.error}));
}

void Agent::tell(const HostEmpty&) {
  say(Kind::nothing_left, to_bytes(AgentNumbers{started_, 0}));
  empty_ = true;
}

/// ssh forwards it to the launcher.
void Agent::tell(const HostGone& gone) { fail(Code::internal, gone.why); }

void Agent::feed_rank_zero() {
  const size_t taken = input_->pump();
  const bool closed = input_->closed();
  if (taken > 0 || closed)
    say(Kind::input_taken, to_bytes(AgentNumbers{static_cast<int32_t>(taken), closed ? 1 : 0}));
  if (closed) input_.reset();
}

/// TCP keepalive probes the launcher's host. No answer means that it is lost. An orderly close does
/// not, since the ssh may still work.
void Agent::watch_launcher() {
  if (!way_.socket) return;
  char nothing;
  const ssize_t size = recv(way_.socket.get(), &nothing, 1, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH))
    fail(Code::peer_lost, "the launcher's host no longer answers");
  way_.socket.reset();
}

void Agent::say(const AgentFrame& frame) { out_.add(as_text(to_bytes(frame))); }

void Agent::say(Kind kind, ByteVector payload) { say({kind, host_, std::move(payload)}); }

void Agent::refuse(StartStep step, const std::string& problem, std::vector<std::string> advice) {
  say(Kind::refused, to_bytes(AgentRefusal{step, problem, std::move(advice)}));
}

}  // namespace

int run_agent() { return Agent().run(); }

}  // namespace hvd::launcher
