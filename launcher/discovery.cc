#include "launcher/discovery.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "core/transport/socket.h"
#include "launcher/driver/report.h"
#include "launcher/options/words.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxOutputBytes = 1 * MiB;
constexpr size_t kMaxComplaintBytes = 500;

bool has_number(std::string_view host) {
  const size_t address = host.find(']');
  return host.find(':', address == std::string_view::npos ? 0 : address) != std::string_view::npos;
}

/// Appends what there is to read now, up to a limit. Returns false at the end.
bool read_some(const FileDescriptor& pipe, std::string& text, size_t limit) {
  char bytes[4096];
  for (;;) {
    const ssize_t size = ::read(pipe.get(), bytes, sizeof(bytes));
    if (size <= 0) return size < 0 && (errno == EAGAIN || errno == EINTR);
    text.append(bytes, std::min(static_cast<size_t>(size), limit - std::min(limit, text.size())));
  }
}

}  // namespace

std::vector<Host> parse_discovered(std::string_view text, const std::string& script,
                                   int slots_per_host) {
  std::vector<Host> hosts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    Host host = parse_printed_host(line, script);
    if (!has_number(line)) host.slots = slots_per_host;
    if (host.slots > 0) hosts.push_back(std::move(host));
  }
  return hosts;
}

Discovery::Discovery(DiscoveryPlan plan, const ProcessDefaults& defaults)
    : plan_(std::move(plan)), defaults_(defaults), events_(epoll_create1(EPOLL_CLOEXEC)) {}

std::optional<Discovery::Result> Discovery::step(TimePoint now) {
  if (!run_ && now >= due_) start(now);
  if (!run_) return std::nullopt;
  read();
  if (now >= due_ && !std::exchange(killed_, true)) run_->kill();
  if (!has_ended(run_->process())) return std::nullopt;
  read();
  Result ended = result();
  run_.reset();
  due_ = now + kInterval;
  return ended;
}

std::optional<TimePoint> Discovery::runs_since() const {
  return run_ ? std::optional(started_) : std::nullopt;
}

void Discovery::start(TimePoint now) {
  Program program{.path = plan_.program, .arguments = {plan_.script}, .environment = {}};
  program.environment = plan_.environment;
  run_ = std::make_unique<PipedChild>(std::move(program), defaults_);
  run_->in.reset();
  printed_.clear();
  complaint_.clear();
  killed_ = false;
  started_ = now;
  allowed_ = patience_;
  due_ = now + allowed_;
  for (const int fd : run_->readable()) watch(events_, fd);
}

void Discovery::read() {
  for (auto [pipe, text, limit] : {std::tuple(&run_->out, &printed_, kMaxOutputBytes),
                                   std::tuple(&run_->err, &complaint_, kMaxComplaintBytes)})
    if (*pipe && !read_some(*pipe, *text, limit)) pipe->reset();
}

/// Its message is the last line of its standard error.
Discovery::Result Discovery::result() {
  const ExitStatus status = exit_status(run_->wait());
  if (run_->error() != 0)
    return {.problem = fmt::format("{} could not be started: {}", plan_.script,
                                   why_not_started(run_->error()))};
  if (killed_)
    return {.problem = fmt::format("{} did not end within {:.2g} s", plan_.script,
                                   std::chrono::duration<double>(allowed_).count())};
  if (status.ok()) return parsed();
  std::string_view said = trimmed(complaint_);
  said = said.substr(said.rfind('\n') + 1);
  return {.problem = fmt::format("{} {}{}{}", plan_.script, describe(status),
                                 said.empty() ? "" : ": ", said)};
}

Discovery::Result Discovery::parsed() const try {
  return {.hosts = parse_discovered(printed_, plan_.script, plan_.slots_per_host)};
} catch (const Error& error) {
  return {.problem = error.what()};
}

namespace {

/// What await_hosts() does until the hosts have enough slots, one run of the script at a time.
class Awaiting {
 public:
  Awaiting(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience,
           const std::function<void(const std::string&)>& say)
      : plan_(plan), slots_(slots), patience_(patience), say_(say) {}

  std::vector<Host> run() {
    for (bool first = true;; first = false) {
      Discovery::Result ended = next();
      const bool is_late = now() >= until_;
      if (first && !is_late && !ended.problem.empty()) fail(Code::invalid_argument, ended.problem);
      int64_t found = 0;
      for (const Host& host : ended.hosts) found += host.slots;
      if (ended.problem.empty() && found >= slots_) return std::move(ended.hosts);
      const std::string few = fmt::format("{} printed {} slot{}, fewer than the {} of --min-np",
                                          plan_.script, found, found == 1 ? "" : "s", slots_);
      if (is_late) give_up(ended.problem, few);
      if (!ended.problem.empty()) {
        tell_problem(ended.problem);
      } else if (!first) {
        tell_shortage(few);
      }
    }
  }

 private:
  /// Returns the result of a run. Tells of one that takes long.
  Discovery::Result next() {
    for (;;) {
      discovery_.set_patience(
          std::clamp<Duration>(until_ - now(), kLeastPatience, Discovery::kPatience));
      if (auto ended = discovery_.step(now())) return *std::move(ended);
      TimePoint wakes_at = discovery_.deadline();
      if (const auto since = discovery_.runs_since(); since && !told_that_it_runs_) {
        if (now() >= *since + kLong)
          tell_that_it_runs();
        else
          wakes_at = std::min(wakes_at, *since + kLong);
      }
      wait_until_ready(discovery_.fd(), POLLIN, wakes_at);
    }
  }

  void tell_that_it_runs() {
    told_that_it_runs_ = true;
    say_(fmt::format("{} has run for {} s: waiting for its end", plan_.script, kLong.count()));
  }

  void tell_problem(const std::string& problem) {
    if (problem == std::exchange(told_problem_, problem)) return;
    say_(fmt::format("{}; it is run again every second, for up to {} s (--elastic-timeout)",
                     problem, patience_.count()));
  }

  void tell_shortage(const std::string& few) {
    if (std::exchange(told_shortage_, true)) return;
    say_(
        fmt::format("{}: waiting up to {} s for more (--elastic-timeout)", few, patience_.count()));
  }

  [[noreturn]] void give_up(const std::string& problem, const std::string& few) {
    if (!problem.empty())
      fail(Code::timed_out,
           fmt::format("{}; it has not printed the {} of --min-np within {} s (--elastic-timeout)",
                       problem, slots_ == 1 ? "slot" : fmt::format("{} slots", slots_),
                       patience_.count()));
    fail(Code::timed_out, fmt::format("{}, for {} s (--elastic-timeout)", few, patience_.count()));
  }

  static TimePoint now() { return std::chrono::steady_clock::now(); }

  /// A run that takes longer is told of.
  static constexpr std::chrono::seconds kLong{2};
  /// The last run may take longer than the time that is left.
  static constexpr std::chrono::seconds kLeastPatience{1};

  const DiscoveryPlan& plan_;
  const int slots_;
  const std::chrono::seconds patience_;
  const std::function<void(const std::string&)>& say_;
  const ProcessDefaults defaults_ = current_defaults();
  const TimePoint until_ = now() + patience_;
  Discovery discovery_{plan_, defaults_};
  std::string told_problem_;
  bool told_shortage_ = false;
  bool told_that_it_runs_ = false;
};

}  // namespace

std::vector<Host> await_hosts(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience,
                              const std::function<void(const std::string&)>& say) {
  return Awaiting(plan, slots, patience, say).run();
}

}  // namespace hvd::launcher
