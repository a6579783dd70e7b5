#include "core/engine/heartbeat.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/engine/pulse.h"
#include "core/transport/process_watch.h"

namespace hvd {
Heartbeat::Heartbeat(Control& control, const Wiring& wiring, const Clock& clock,
                     std::chrono::milliseconds limit)
    : control_(control),
      wiring_(wiring),
      clock_(clock),
      limit_(wiring.identity.size > 1 ? limit : std::chrono::milliseconds(0)),
      period_(Duration(limit) / Pulse::kBeatsPerLimit) {}

// A rank that is asked asks at once, so that the time of the knob also holds for ranks further
// away. A beat that comes late counts as one: this process may have been stopped.
std::optional<Heartbeat::Silence> Heartbeat::check(bool pending) {
  if (limit_.count() == 0) return std::nullopt;
  const bool is_asked = control_.is_asked();
  if (!pending && !is_asked) {
    next_beat_.reset();
    return std::nullopt;
  }
  const TimePoint now = clock_.now();
  if (!next_beat_) {
    control_.restart_beats();
    next_beat_ = is_asked ? now : now + period_;
  }
  if (now < *next_beat_) return std::nullopt;
  next_beat_ = now + period_;
  return judge(control_.beat(pending));
}

// As in check(), a beat that comes late counts as one.
std::optional<Heartbeat::Silence> Heartbeat::check_stopped(const std::vector<int>& awaited) {
  if (limit_.count() == 0) return std::nullopt;
  const TimePoint now = clock_.now();
  if (!next_beat_) next_beat_ = now + period_;
  if (now < *next_beat_) return std::nullopt;
  next_beat_ = now + period_;
  const auto stopped = std::ranges::find_if(awaited, [this](int rank) {
    return state_of(rank) == kStoppedBySignal || has_replaced_itself(rank);
  });
  beats_stopped_ = stopped == awaited.end() ? 0 : beats_stopped_ + 1;
  if (beats_stopped_ < Pulse::kBeatsPerLimit) return std::nullopt;
  return has_replaced_itself(*stopped) ? replacement_of(*stopped)
                                       : silence_of(*stopped, beats_stopped_, true);
}

// A process of this host that runs is not given up: its progress thread is slow. Nor is one that a
// debugger has stopped (state t). One that is stopped does not load libraries. One that another
// program has replaced is seen at two beats, since a rank that ends closes its files, too: what it
// has sent before is read in between.
std::optional<Heartbeat::Silence> Heartbeat::judge(const std::vector<Quiet>& quiet) {
  const int replaced_before = std::exchange(replaced_, kNoRank);
  for (const auto& [rank, pulse] : quiet) {
    if (has_replaced_itself(rank)) {
      if (rank == replaced_before) return replacement_of(rank);
      replaced_ = rank;
    } else if (pulse.is_silent()) {
      const std::optional<char> state = state_of(rank);
      const bool is_lost = state ? *state == kStoppedBySignal : !pulse.may_be_starting();
      if (is_lost) return silence_of(rank, pulse.silent_beats(), state.has_value());
    }
  }
  return std::nullopt;
}

Heartbeat::Silence Heartbeat::silence_of(int rank, int beats, bool is_stopped) const {
  const double seconds = std::chrono::duration<double>(beats * period_).count();
  return {rank, fmt::format("its process{} has sent nothing for {:.3g} s: {}; {} has given it up",
                            wiring_.on_host(rank), seconds,
                            is_stopped ? "it is stopped (SIGSTOP)"
                                       : "it is stopped, or its host or network is down",
                            name_of(wiring_.identity.rank))};
}

Heartbeat::Silence Heartbeat::replacement_of(int rank) const {
  return {rank, fmt::format("its process{} has replaced itself by another program (exec); {} has "
                            "given it up",
                            wiring_.on_host(rank), name_of(wiring_.identity.rank))};
}

bool Heartbeat::has_replaced_itself(int rank) const {
  const FileDescriptor* const process = process_of(rank);
  return process != nullptr && hvd::has_replaced_itself(*process, kSegmentFile);
}

std::optional<char> Heartbeat::state_of(int rank) const {
  const FileDescriptor* const process = process_of(rank);
  return process == nullptr ? std::nullopt : state_of_process(*process);
}

/// nullptr: it is on another host.
const FileDescriptor* Heartbeat::process_of(int rank) const {
  const auto& peers = wiring_.local_peers;
  const auto peer = std::ranges::find(peers, rank, &Wiring::Watched::rank);
  return peer == peers.end() ? nullptr : &peer->process;
}

std::string Heartbeat::name_of(int rank) const {
  return fmt::format("rank {}{}", rank, wiring_.on_host(rank));
}

}  // namespace hvd
