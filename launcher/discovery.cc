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

void Discovery::start(TimePoint now) {
  Program program{.path = plan_.program, .arguments = {plan_.script}, .environment = {}};
  program.environment = plan_.environment;
  run_ = std::make_unique<PipedChild>(std::move(program), defaults_);
  run_->in.reset();
  printed_.clear();
  complaint_.clear();
  killed_ = false;
  due_ = now + kPatience;
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
    return {.problem = fmt::format("{} did not end within {} s", plan_.script, kPatience.count())};
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

std::vector<Host> await_hosts(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience) {
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  const ProcessDefaults defaults = current_defaults();
  const TimePoint until = clock() + patience;
  Discovery discovery(plan, defaults);
  for (bool first = true;; first = false) {
    std::optional<Discovery::Result> ended;
    while (!(ended = discovery.step(clock())))
      wait_until_ready(discovery.fd(), POLLIN, discovery.deadline());
    if (first && !ended->problem.empty()) fail(Code::invalid_argument, ended->problem);
    int64_t found = 0;
    for (const Host& host : ended->hosts) found += host.slots;
    if (found >= slots) return std::move(ended->hosts);
    if (clock() >= until)
      fail(Code::timed_out,
           fmt::format("{} printed {} slots, fewer than the {} of --min-np, for {} s "
                       "(--elastic-timeout)",
                       plan.script, found, slots, patience.count()));
  }
}

}  // namespace hvd::launcher
