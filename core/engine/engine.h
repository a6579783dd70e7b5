// The progress engine of one job generation as a step function. turn() takes submissions,
// negotiates with the other ranks, moves a segment of the running batch, and returns. It never
// blocks and has no thread. The ProgressThread and the simulator drive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backends.h"
#include "core/base/clock.h"
#include "core/base/inbox.h"
#include "core/base/knobs.h"
#include "core/bootstrap/connections.h"
#include "core/bootstrap/wiring.h"
#include "core/engine/control.h"
#include "core/engine/ending.h"
#include "core/engine/event_source.h"
#include "core/engine/heartbeat.h"
#include "core/engine/launcher_watch.h"
#include "core/engine/names_in_flight.h"
#include "core/engine/process_sets.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/engine/self_report.h"
#include "core/engine/stall_watch.h"

namespace hvd {

/// The reason why a submission was rejected.
struct Refusal {
  enum class Why : uint8_t {
    closed,          ///< the generation has ended, see ending()
    full,            ///< too many operations are in flight
    name_in_flight,  ///< an operation with the name of `request` is in flight on this rank
  };
  Why why;
  const Request* request;  ///< one of the submitted requests
};

/// Only the holder of the progress token may call functions, except those marked as thread-safe.
class Engine {
 public:
  /// Called with the ending before any Handle completes with it. `interrupts`: operations are in
  /// flight, or this rank has given up another one. Must not throw.
  using Told = std::function<void(const Ending&, bool interrupts)>;

  /// Calls `make_backends` at once. `observer` and `board` may be nullptr; they must outlive the
  /// Engine.
  Engine(Wiring wiring, const Knobs& knobs, const Clock& clock, Told told,
         const MakeBackends& make_backends, Observer* observer = nullptr,
         RankBoard* board = nullptr);
  /// Requires finished().
  ~Engine();

  /// Queues a request. On a refusal the request is unchanged. Thread-safe.
  std::optional<Refusal> submit(Request&& request) { return submit(std::span(&request, 1)); }
  /// Queues all requests or none. Thread-safe.
  std::optional<Refusal> submit(std::span<Request> requests);
  /// Queues the end of the job after all earlier submissions. Does nothing if the job has ended.
  /// Thread-safe.
  void submit_shutdown() {
    Request request;
    request.ends_job = true;
    inbox_.push_beyond_limit(std::move(request));
  }
  /// Counts the calls outside of the engine (on blocking groups) that wait for ranks: `change` more
  /// than before. Meanwhile the ranks look for silent ones. Thread-safe; ring() then.
  void count_waiting_calls(int change) {
    waiting_calls_.fetch_add(change, std::memory_order_relaxed);
  }
  /// Those that the engine tells of if it is asked what this rank waits for. Thread-safe.
  GroupCalls& group_calls() { return group_calls_; }
  /// Returns nullopt while the generation is running. Thread-safe.
  std::optional<Ending> ending() const { return inbox_.why_closed(); }
  /// Thread-safe.
  const ProcessSets& process_sets() const { return sets_; }
  /// Thread-safe.
  const Counters& counters() const { return counters_; }
  /// Thread-safe, for the functions of a Backend that other threads may call.
  const Backends& backends() const { return backends_; }

  /// Does all work that is possible now. Returns whether there was any. After an Error the caller
  /// must call abandon() and continue to call turn() until finished().
  bool turn();
  /// Ends the generation after a loss or an internal error. Every pending operation completes with
  /// `error`, and the other ranks receive the cause. If the other ranks have told another cause
  /// before, that one counts. If the links are closing already, it only drops the connections of
  /// the rank.
  void abandon(const Error& error);

  bool finished() const { return state_ == State::finished; }
  /// Operations are pending or the job is ending, so turn() must be called.
  bool busy() const;
  /// Data for peers is queued that the sockets have not accepted yet.
  bool owes_peers() const { return connections_.has_unsent(); }
  /// The time of the next timer, at which turn() must be called without any event.
  std::optional<TimePoint> deadline() const;

  /// Sleeps until an event for turn() or deadline().
  void wait() { connections_.wait(deadline()); }
  /// Sleeps until turn() should be called or `until`, without consuming events. Needs no token.
  void park(std::optional<TimePoint> until) { wiring_.waiter->park(until); }
  /// After park(): collects the events for the next turn().
  void take_events() { connections_.poll(); }
  /// Ends wait() and park(). Thread-safe.
  void ring() { wiring_.waiter->ring(); }
  /// Call it before and after wait() and park(), see Connections. Between set_asleep(true) and the
  /// sleep, turn() must have returned false.
  void set_asleep(bool asleep) { connections_.set_asleep(asleep); }

 private:
  enum class State : uint8_t { running, draining, closing, finished };

  std::vector<ChannelSet*> channel_sets();
  using Requests = std::map<uint64_t, Request>;
  bool take_submissions();
  void accept(Request& request);
  Submitted announce(const Request& request, uint64_t tag);
  void lose_process(int rank);
  void heed_reports();
  void look_for_silence(bool moved);
  void give_up(const Heartbeat::Silence& silence);
  void look_for_launcher();
  bool act();
  void act_on(Action& action);
  void enqueue(Action& action);
  Batch make_batch(const Action& action);
  void adopt(Runner::Job& job, uint64_t tag);
  void add_group(GroupNumber number, const std::vector<int>& members);
  void add_pair(const std::vector<int>& ranks);
  void add_set(Action& action);
  void remove_set(const Action& action);
  void finish_waiting(uint64_t tag, Outcome outcome);
  void report_state();
  bool run_batches();
  void complete_launched();
  void finish(Request& request, Outcome outcome);
  void end_requests(const Ending& ending) {
    while (!requests_.empty()) {
      const auto& [tag, request] = *requests_.begin();
      finish_waiting(tag, outcome_of(ending, request));
    }
  }
  void end(Ending ending);
  void abandon_backends() {
    backends_.for_each([](Backend& backend) { backend.abandon(); });
  }
  void end_device_work() {
    backends_.for_each([](Backend& backend) { backend.end_device_work(); });
  }
  bool leave_devices();
  void hear_of_end();
  std::optional<Error> told_cause();
  bool is_lost() const { return ending_ && ending_->code != Code::shut_down; }
  EndedBy ended_by(int rank) const {
    return {.on_host = wiring_.spans_hosts() ? wiring_.on_host(rank) : "",
            .others_go_on = wiring_.identity.generation.has_value()};
  }
  int culprit_of(int rank) const { return rank == kNoRank ? wiring_.identity.rank : rank; }
  void begin_closing();
  bool close();
  void look_for_stopped();

  Wiring wiring_;
  const Knobs knobs_;
  const Clock& clock_;
  Told told_;
  const Backends backends_;
  NamesInFlight names_;
  Inbox<Request, Ending> inbox_;
  std::vector<Request> taken_;
  size_t accepted_ = 0;  ///< how many of taken_

  Control control_;
  Connections connections_;
  Counters counters_;
  EventSource events_;
  StallWatch stall_watch_;
  GroupCalls group_calls_;
  SelfReport self_report_;
  Heartbeat heartbeat_;
  LauncherWatch launcher_watch_;
  /// Relaxed: the doorbell orders it before the next turn, and a late look does no harm.
  std::atomic<int> waiting_calls_{0};
  uint32_t turns_ = 0;
  std::optional<Heartbeat::Silence> silence_;  ///< of the rank that this one has given up
  ProcessSets sets_;
  Runner runner_;
  Requests requests_;  ///< by tag, from acceptance to agreement
  uint64_t next_tag_ = 1;
  uint64_t join_tag_ = 0;  ///< of the join in flight

  State state_ = State::running;
  std::optional<Ending> ending_;
  bool awaits_end_ = false;          ///< this rank has asked for the end of the job
  bool has_failed_ = false;          ///< this rank itself is the cause of the loss
  bool is_leaving_devices_ = false;  ///< draining: no run is left
  TimePoint closing_until_{};
};

}  // namespace hvd
