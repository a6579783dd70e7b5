#include "job/remote/agent.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/capi/version.h"
#include "core/transport/interfaces.h"
#include "job/driver/report.h"
#include "job/local/local_link.h"
#include "job/process/command.h"
#include "job/process/open_files.h"
#include "job/remote/agent_branches.h"
#include "job/remote/agent_frames.h"
#include "job/remote/connect_back.h"
#include "job/stream/console.h"
#include "job/stream/input_pipe.h"

namespace hvd::job {
namespace {

using Kind = AgentFrame::Kind;

/// A launcher whose host is cut off is given up after about this time.
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
  void start();
  void pass_on();
  void feed_rank_zero();
  void watch_launcher();
  void say(const AgentFrame& frame);
  void say(Kind kind, ByteVector payload);
  void refuse(StartStep step, const std::string& problem, std::vector<std::string> advice);

  ProcessDefaults defaults_ = current_defaults();
  Console out_{STDOUT_FILENO};
  AgentFrameReader reader_{false};
  uint32_t host_ = kNoHost;  ///< our own number
  AgentSetup setup_;
  RankCommand command_;
  Binding binding_;
  TimePoint give_up_at_ = TimePoint::max();
  std::optional<ConnectBack> connecting_;
  WayBack way_;  ///< its connection tells when the launcher's host is gone
  std::optional<LocalLink> link_;
  bool empty_ = false;  ///< nothing is left here
  AgentBranches branches_{defaults_, [this](const AgentFrame& frame) { say(frame); }};
  std::optional<InputPipe> input_;  ///< where rank 0 is here, until nobody reads it
  int64_t output_room_ = 0;         ///< bytes that the launcher can take; below 0: it got more
  std::optional<int> exit_code_;
};

TimePoint now() { return std::chrono::steady_clock::now(); }

Agent::Agent() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
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
    if (empty_ && branches_.over()) exit_code_ = 0;
    out_.pump();
    if (link_) link_->pause_output(output_room_ <= 0);
  }
  if (*exit_code_ == 0) out_.drain();  // otherwise nobody may be there to read
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
  std::array<pollfd, 7> watched{{
      {STDIN_FILENO, POLLIN, 0},
      {out_.has_waiting() ? out_.fd() : -1, POLLOUT, 0},
      {connecting_ ? connecting_->fd() : -1, POLLIN, 0},
      {link_ ? link_->fd() : -1, POLLIN, 0},
      {way_.socket.get(), POLLIN, 0},
      {input_ ? input_->fd() : -1, POLLOUT, 0},
      {branches_.fd(), POLLIN, 0},
  }};
  TimePoint until = connecting_ ? give_up_at_ : TimePoint::max();
  if (connecting_) until = std::min(until, connecting_->deadline().value_or(until));
  int timeout = -1;
  if (until != TimePoint::max())
    timeout = static_cast<int>(
        std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now()).count()));
  if (poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR)
    fail_errno("waiting for the launcher");
  if (watched[0].revents != 0) take_input();
}

/// The end of the input is the end of the launcher, or of the ssh: what runs here ends with us, by
/// the supervisor.
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
    case Kind::start:
      return start();
    case Kind::signal_all:
      if (link_) link_->signal_all(read_numbers(frame.payload).first);
      return;
    case Kind::output_room:
      output_room_ += read_numbers(frame.payload).first;
      return;
    case Kind::input:  // what comes too late is dropped
      if (input_) input_->add(as_text(frame.payload));
      return;
    default:
      Reader::malformed("frame of the launcher");
  }
}

void Agent::prepare(AgentSetup setup) {
  if (!setup_.places.empty()) Reader::malformed("second setup");
  setup_ = std::move(setup);
  if (chdir(setup_.folder.c_str()) != 0)
    return refuse(
        StartStep::program,
        fmt::format("the working folder {} is not there: {}", setup_.folder, errno_text(errno)),
        {"make it on that host with what the job needs, or start the job in a folder that all "
         "hosts "
         "share"});
  FoundCommand found = find_command(setup_.command, setup_.environment);
  if (!found.problem.empty())
    return refuse(StartStep::program, found.problem,
                  {fmt::format("PATH there, as here: {}", path_of(setup_.environment)),
                   "install the same programs at the same paths on all hosts"});
  command_ = {.program = std::move(found.program),
              .arguments = setup_.command,
              .environment = setup_.environment};
  binding_ = binding_here(setup_.places, setup_.binding);
  if (is_refused(binding_, setup_.binding))
    return refuse(StartStep::program, binding_.why_not, {std::string(kNotBoundAdvice)});
  if (const std::string shortage = shortage_of({.local_ranks = setup_.places.size()}, defaults_);
      !shortage.empty())
    return refuse(StartStep::program, shortage, {more_files_advice()});
  connect_back();
}

/// Of those that the user allows, the ones that this host has.
std::vector<std::string> Agent::allowed_interfaces() const {
  std::vector<std::string> allowed;
  for (const InterfaceAddress& one : interface_addresses())
    if (std::ranges::find(setup_.interfaces, one.interface_name) != setup_.interfaces.end())
      allowed.push_back(one.interface_name);
  return allowed;
}

/// The first word of SSH_CONNECTION is where ssh came from.
void Agent::connect_back() {
  ConnectBackPlan plan{.addresses = setup_.store_addresses,
                       .port = setup_.store_port,
                       .first = {},
                       .interfaces = allowed_interfaces()};
  if (plan.interfaces.empty() && !setup_.interfaces.empty()) {
    std::string names;
    for (const std::string& name : setup_.interfaces) names += " " + name;
    return refuse(StartStep::connect_back,
                  fmt::format("none of the interfaces that the job may use is up there:{}", names),
                  {"name those of all hosts: horovodrun --network-interfaces A,B ..."});
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
    say(Kind::ready, to_bytes(AgentReady{way_.address, way_.interface,
                                         describe(binding_, setup_.places), warning_here()}));
  } else if (connecting_->failed() || now() >= give_up_at_) {
    std::vector<std::string> advice = connecting_->told();
    advice.emplace_back(
        "allow TCP from that host to this one (a firewall?), or name the interface that both use: "
        "horovodrun --network-interfaces NAME ...");
    connecting_.reset();
    refuse(StartStep::connect_back, "the launcher was not reached at any of its addresses",
           std::move(advice));
  }
}

void Agent::start() {
  if (way_.address.empty() || link_) Reader::malformed("start");
  LocalPlan plan;
  plan.places = setup_.places;
  plan.meeting.interfaces = setup_.interfaces;
  plan.meeting.interface = way_.interface;
  plan.meeting.one_host = false;
  if (setup_.places.front().rank == 0) plan.rank_zero_input = input_.emplace().read_end();
  plan.binding = std::move(binding_);
  link_.emplace(command_, std::move(plan), setup_.key, defaults_);
  link_->start({way_.address, setup_.store_port});
  if (input_) input_->let_go();
}

void Agent::pass_on() {
  HostNews news;
  link_->take(news);
  for (Chunk& chunk : news.output) {
    output_room_ -= static_cast<int64_t>(chunk.bytes.size());
    say(Kind::output, to_bytes(AgentOutput{chunk.rank, chunk.stream, std::move(chunk.bytes)}));
  }
  for (const HostEvent& event : news.events) {
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      say(Kind::exited, to_bytes(AgentNumbers{exited->rank, wait_status(exited->status)}));
    } else if (const auto* missing = std::get_if<RankNotStarted>(&event)) {
      say(Kind::not_started, to_bytes(AgentNumbers{missing->rank, missing->error}));
    } else if (const auto* gone = std::get_if<HostGone>(&event)) {
      fail(Code::internal, gone->why);  // ssh carries it to the launcher
    } else {
      say(Kind::nothing_left, {});
      empty_ = true;
    }
  }
}

void Agent::feed_rank_zero() {
  const size_t taken = input_->pump();
  const bool closed = input_->closed();
  if (taken > 0 || closed)
    say(Kind::input_taken, to_bytes(AgentNumbers{static_cast<int32_t>(taken), closed ? 1 : 0}));
  if (closed) input_.reset();
}

/// The kernel asks the launcher's kernel from time to time. No answer is the end; a connection that
/// is closed in order is not, since whoever did that may have cut nothing else.
void Agent::watch_launcher() {
  if (!way_.socket) return;
  char nothing;
  const ssize_t size = recv(way_.socket.get(), &nothing, 1, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH))
    fail(Code::peer_lost, "the launcher's host does not answer any more");
  way_.socket.reset();
}

void Agent::say(const AgentFrame& frame) { out_.add(as_text(to_bytes(frame))); }

void Agent::say(Kind kind, ByteVector payload) { say({kind, host_, std::move(payload)}); }

void Agent::refuse(StartStep step, const std::string& problem, std::vector<std::string> advice) {
  say(Kind::refused, to_bytes(AgentRefusal{step, problem, std::move(advice)}));
}

}  // namespace

int run_agent() { return Agent().run(); }

}  // namespace hvd::job
