#include "launcher/remote/remote_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/version.h"

namespace hvd::launcher {
namespace {

using Kind = AgentFrame::Kind;

}  // namespace

RemoteLink::RemoteLink(RemotePlan plan, const AgentSetup& setup, const Environment& environment,
                       const ProcessDefaults& defaults)
    : plan_(std::move(plan)),
      setup_(setup),
      connection_(plan_.hosts.front().name, plan_.ssh, environment, defaults) {
  add_branch({0, plan_.hosts.size()}, "");
  fars_.front().row.untried = false;
}

/// In the order of the plan, in which a branch follows its first host.
void RemoteLink::add_branch(const Branch& branch, const std::string& from) {
  RemoteHost& host = plan_.hosts[branch.first];
  const std::string name = host.name;
  fars_.push_back({.host = std::move(host),
                   .branch = branch,
                   .row = {.host = name, .untried = true, .from = from}});
  for (const Branch& below : branches(branch.first + 1, branch.count - 1, plan_.fan_out))
    add_branch(below, name);
}

RemoteLink::Far& RemoteLink::far(uint32_t index) {
  const auto found =
      std::ranges::lower_bound(fars_, index, {}, [](const Far& one) { return one.host.index; });
  if (found == fars_.end() || found->host.index != index) Reader::malformed("host");
  return *found;
}

RemoteLink::Far* RemoteLink::find(int host) {
  const auto found = std::ranges::find(fars_, static_cast<uint32_t>(host),
                                       [](const Far& one) { return one.host.index; });
  return found == fars_.end() ? nullptr : &*found;
}

/// Returns the worker that a frame names.
WorkerId RemoteLink::known(const Far& far, int slot, int incarnation) {
  const WorkerId worker{static_cast<int>(far.host.index), slot, incarnation};
  if (!far.workers.contains(worker)) Reader::malformed("worker");
  return worker;
}

void RemoteLink::take(HostNews& news) {
  connection_.take([&](const AgentFrame& frame) { take_frame(frame, news); });
  if (!paused_) give_output_room();
  if (connection_.over() && !std::exchange(ended_, true))
    take_end(fars_.front(), connection_.end(), news);
}

void RemoteLink::take_frame(const AgentFrame& frame, HostNews& news) {
  Far& one = frame.host == kNoHost ? fars_.front() : far(frame.host);
  switch (frame.kind) {
    case Kind::hello:
      return take_hello(one, read_hello(frame.payload), news);
    case Kind::ready:
      return take_ready(one, read_ready(frame.payload));
    case Kind::refused:
      return take_refusal(one, read_refusal(frame.payload));
    case Kind::lost:
      return take_end(one, read_end(frame.payload), news);
    case Kind::output:
      return take_output(one, read_output(frame.payload), news);
    case Kind::exited: {
      const auto [slot, incarnation, status] = read_worker_number(frame.payload);
      news.events.push_back(WorkerExited{known(one, slot, incarnation), exit_status(status)});
      return;
    }
    case Kind::not_started: {
      const auto [slot, incarnation, error] = read_worker_number(frame.payload);
      news.events.push_back(WorkerNotStarted{known(one, slot, incarnation), error});
      return;
    }
    case Kind::dumped:
      news.dumps.push_back({static_cast<int>(one.host.index), std::string(as_text(frame.payload))});
      return;
    case Kind::input_taken:
      return take_taken_input(read_numbers(frame.payload));
    case Kind::nothing_left:
      return take_nothing_left(one, read_numbers(frame.payload), news);
    default:
      Reader::malformed("frame of an agent");
  }
}

/// A Setup holds the job's key: it is sent only after our own program has answered.
void RemoteLink::take_hello(Far& far, const AgentHello& hello, HostNews& news) {
  if (hello.version != kVersion) {
    StartRow row = other_version(plan_.ssh, far.host.name, hello.version, kVersion);
    const std::string problem = row.problem;
    return take_end(far, {{row.step, std::move(row.problem), std::move(row.advice)}, problem},
                    news);
  }
  far.row.step = StartStep::program;
  AgentSetup setup = setup_;
  setup.host_name = far.host.name;
  setup.slots = static_cast<uint32_t>(far.host.slots);
  say(far, Kind::setup, to_bytes(setup));
  const Branch& own = far.branch;
  for (const Branch& below : branches(own.first + 1, own.count - 1, plan_.fan_out)) {
    Far& first = fars_[below.first];
    const Far& last = fars_[below.first + below.count - 1];
    first.row.untried = false;
    say(far, Kind::reach,
        to_bytes(AgentReach{first.host.index, last.host.index, first.host.name, plan_.ssh}));
  }
}

void RemoteLink::take_ready(Far& far, AgentReady ready) {
  far.row.step = StartStep::ready;
  far.row.reached_at = std::move(ready.store_address);
  far.row.interface = std::move(ready.interface);
  far.row.cpus = std::move(ready.cpus);
  far.row.not_bound = std::move(ready.not_bound);
  far.row.warning = std::move(ready.warning);
}

void RemoteLink::take_output(Far& far, AgentOutput output, HostNews& news) {
  const WorkerId worker = known(far, output.slot, output.incarnation);
  far.output_taken += output.bytes.size();
  news.output.push_back({worker, output.stream, std::move(output.bytes)});
}

void RemoteLink::take_refusal(Far& far, AgentRefusal refusal) {
  if (far.row.failed()) return;
  far.row.step = refusal.step;
  far.row.problem = std::move(refusal.problem);
  far.row.advice = std::move(refusal.advice);
}

/// A lost host takes all hosts reached through it with it.
void RemoteLink::take_end(Far& far, const AgentEnd& end, HostNews& news) {
  const auto branch = std::span(fars_).subspan(far.branch.first, far.branch.count);
  for (Far& one : branch) {
    const bool first = &one == &far;
    const bool was_over = std::exchange(one.over, true);
    if (!started_ || !one.row.ready()) {
      if (first) take_refusal(far, end.before);
      if (!first) one.row = without_way(std::move(one.row), far.host.name);
    } else if (!was_over) {
      news.events.push_back(
          HostGone{static_cast<int>(one.host.index),
                   first ? end.after : fmt::format("it was reached through {}", far.host.name), 1});
    }
  }
}

/// Ignored if the agent sent it before it received the most recent start of workers.
void RemoteLink::take_nothing_left(Far& far, const AgentNumbers& numbers, HostNews& news) {
  if (static_cast<size_t>(numbers.first) != far.workers.size()) return;
  far.empty = true;
  far.over = !more_;
  news.events.push_back(HostEmpty{static_cast<int>(far.host.index)});
}

void RemoteLink::take_taken_input(const AgentNumbers& numbers) {
  if (numbers.first < 0 || static_cast<size_t>(numbers.first) > input_on_its_way_)
    Reader::malformed("taken input");
  input_on_its_way_ -= static_cast<size_t>(numbers.first);
  input_ended_ = input_ended_ || numbers.second != 0;
}

void RemoteLink::tell_rows(std::vector<StartRow>& rows) const {
  for (const Far& one : fars_) rows[one.host.index] = one.row;
}

bool RemoteLink::settled() const {
  return std::ranges::all_of(fars_, [](const Far& one) { return one.row.settled(); });
}

void RemoteLink::start_workers(std::span<const AssignedWorker> workers, const Address&) {
  HVD_ASSERT(more_);
  for (Far& one : fars_) {
    std::vector<AssignedWorker> here;
    for (const AssignedWorker& worker : workers)
      if (worker.id.host == static_cast<int>(one.host.index)) here.push_back(worker);
    if (!here.empty() && !one.over) start_on(one, here);
  }
  started_ = true;
}

void RemoteLink::start_on(Far& far, std::span<const AssignedWorker> workers) {
  const bool first = far.workers.empty();
  for (const AssignedWorker& worker : workers) {
    far.workers.insert(worker.id);
    reads_input_ = reads_input_ || worker.reads_input();
  }
  far.empty = false;
  say(far, Kind::start_workers, to_bytes(AgentStart{{workers.begin(), workers.end()}}));
  if (first)
    say(far, Kind::output_room,
        to_bytes(AgentNumbers{static_cast<int32_t>(plan_.output_window), 0}));
}

void RemoteLink::no_more_workers() {
  say_to_all(Kind::no_more_workers, {});
  more_ = false;
  for (Far& one : fars_) one.over = one.over || one.empty;
}

void RemoteLink::signal(const WorkerId& worker, int signal) {
  if (const Far* one = find(worker.host); one != nullptr && !one->over)
    say(*one, Kind::signal_worker,
        to_bytes(AgentWorkerNumber{worker.slot, worker.incarnation, signal}));
}

void RemoteLink::signal_all(int signal) {
  say_to_all(Kind::signal_all, to_bytes(AgentNumbers{signal, 0}));
}

void RemoteLink::ask_for_dumps(Question question, std::set<int>& hosts) {
  for (const Far& one : fars_) {
    if (one.over || one.workers.empty()) continue;
    hosts.insert(static_cast<int>(one.host.index));
    say(one, Kind::dump, to_bytes(question));
  }
}

void RemoteLink::pause_output(bool paused) {
  paused_ = paused;
  if (!paused_) give_output_room();
}

/// Grants as much room as output has arrived.
void RemoteLink::give_output_room() {
  for (Far& one : fars_)
    if (const size_t bytes = std::exchange(one.output_taken, 0); bytes > 0 && !one.over)
      say(one, Kind::output_room, to_bytes(AgentNumbers{static_cast<int32_t>(bytes), 0}));
}

std::optional<size_t> RemoteLink::input_room() const {
  if (input_ended_ || fars_.front().over || !reads_input_) return std::nullopt;
  return kInputWindowBytes - input_on_its_way_;
}

void RemoteLink::give_input(std::string_view bytes) {
  HVD_ASSERT(bytes.size() <= input_room());
  input_ended_ = bytes.empty();
  input_on_its_way_ += bytes.size();
  say(fars_.front(), Kind::input, ByteVector(as_bytes(bytes).begin(), as_bytes(bytes).end()));
}

void RemoteLink::say(const Far& far, Kind kind, ByteVector payload) {
  connection_.say({kind, far.host.index, std::move(payload)});
}

void RemoteLink::say_to_all(Kind kind, const ByteVector& payload) {
  for (const Far& one : fars_)
    if (!one.over) say(one, kind, payload);
}

}  // namespace hvd::launcher
