#include "job/remote/remote_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/capi/version.h"

namespace hvd::job {
namespace {

using Kind = AgentFrame::Kind;

bool has_rank(const RemoteHost& host, int rank) {
  const int first = host.places.front().rank;
  return rank >= first && rank < first + static_cast<int>(host.places.size());
}

}  // namespace

RemoteLink::RemoteLink(RemotePlan plan, const AgentSetup& setup, const Environment& environment,
                       const ProcessDefaults& defaults)
    : plan_(std::move(plan)),
      setup_(setup),
      connection_(plan_.hosts.front().name, plan_.ssh, environment, defaults) {
  add_branch({0, plan_.hosts.size()}, "");
  fars_.front().row.untried = false;
}

/// In the order of the plan, since a branch lies behind its first host.
void RemoteLink::add_branch(const Branch& branch, const std::string& from) {
  RemoteHost& host = plan_.hosts[branch.first];
  const std::string name = host.name;
  fars_.push_back({std::move(host), branch, {.host = name, .untried = true, .from = from}, false});
  for (const Branch& below : branches(branch.first + 1, branch.count - 1, plan_.fan_out))
    add_branch(below, name);
}

RemoteLink::Far& RemoteLink::far(uint32_t index) {
  const auto found =
      std::ranges::lower_bound(fars_, index, {}, [](const Far& one) { return one.host.index; });
  if (found == fars_.end() || found->host.index != index) Reader::malformed("host");
  return *found;
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
    case Kind::ready: {
      AgentReady ready = read_ready(frame.payload);
      one.row.step = StartStep::ready;
      one.row.reached_at = std::move(ready.store_address);
      one.row.interface = std::move(ready.interface);
      one.row.cpus = std::move(ready.cpus);
      one.row.warning = std::move(ready.warning);
      return;
    }
    case Kind::refused:
      return take_refusal(one, read_refusal(frame.payload));
    case Kind::lost:
      return take_end(one, read_end(frame.payload), news);
    case Kind::output: {
      AgentOutput output = read_output(frame.payload);
      if (!has_rank(one.host, output.rank)) Reader::malformed("rank");
      one.output_taken += output.bytes.size();
      news.output.push_back({output.rank, output.stream, std::move(output.bytes)});
      return;
    }
    case Kind::exited:
    case Kind::not_started: {
      const AgentNumbers numbers = read_numbers(frame.payload);
      if (!has_rank(one.host, numbers.first)) Reader::malformed("rank");
      if (frame.kind == Kind::exited) {
        news.events.push_back(RankExited{numbers.first, exit_status(numbers.second)});
      } else {
        news.events.push_back(RankNotStarted{numbers.first, numbers.second});
      }
      return;
    }
    case Kind::input_taken:
      return take_taken_input(read_numbers(frame.payload));
    case Kind::nothing_left:
      one.over = true;
      news.events.push_back(HostEmpty{static_cast<int>(one.host.index)});
      return;
    default:
      Reader::malformed("frame of an agent");
  }
}

/// A Setup holds the job's key: it goes only where our own program has answered.
void RemoteLink::take_hello(Far& far, const AgentHello& hello, HostNews& news) {
  if (hello.version != kVersion) {
    StartRow row = other_version(plan_.ssh, far.host.name, hello.version, kVersion);
    const std::string problem = row.problem;
    return take_end(far, {{row.step, std::move(row.problem), std::move(row.advice)}, problem},
                    news);
  }
  far.row.step = StartStep::program;
  AgentSetup setup = setup_;
  setup.places = far.host.places;
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

void RemoteLink::take_refusal(Far& far, AgentRefusal refusal) {
  if (far.row.failed()) return;
  far.row.step = refusal.step;
  far.row.problem = std::move(refusal.problem);
  far.row.advice = std::move(refusal.advice);
}

/// With a host goes all that is reached from there.
void RemoteLink::take_end(Far& far, const AgentEnd& end, HostNews& news) {
  if (!started_) take_refusal(far, end.before);
  const auto branch = std::span(fars_).subspan(far.branch.first, far.branch.count);
  for (Far& one : branch) {
    const bool first = &one == &far;
    if (!started_) {
      if (!first) one.row = without_way(std::move(one.row), far.host.name);
    } else if (!std::exchange(one.over, true)) {
      news.events.push_back(HostGone{
          static_cast<int>(one.host.index),
          first ? end.after : fmt::format("it was reached by way of {}", far.host.name), 1});
    }
  }
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

void RemoteLink::start(const Address&) {
  started_ = true;
  say_to_all(Kind::start, {});
  say_to_all(Kind::output_room,
             to_bytes(AgentNumbers{static_cast<int32_t>(plan_.output_window), 0}));
}

void RemoteLink::signal_all(int signal) {
  say_to_all(Kind::signal_all, to_bytes(AgentNumbers{signal, 0}));
}

void RemoteLink::pause_output(bool paused) {
  paused_ = paused;
  if (!paused_) give_output_room();
}

/// What has come makes room for as much.
void RemoteLink::give_output_room() {
  for (Far& one : fars_)
    if (const size_t bytes = std::exchange(one.output_taken, 0); bytes > 0 && !one.over)
      say(one, Kind::output_room, to_bytes(AgentNumbers{static_cast<int32_t>(bytes), 0}));
}

std::optional<size_t> RemoteLink::input_room() const {
  const Far& first = fars_.front();
  if (input_ended_ || first.over || !has_rank(first.host, 0)) return std::nullopt;
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

}  // namespace hvd::job
