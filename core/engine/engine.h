// The runtime of one generation as one step function: turn() takes what was submitted, agrees with
// the other ranks, moves a segment of the batch that is running, and returns. It never blocks and
// has no thread, so the simulator steps it just as the Driver does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/host/carrier.h"
#include "core/base/clock.h"
#include "core/base/inbox.h"
#include "core/base/knobs.h"
#include "core/engine/control.h"
#include "core/engine/event_source.h"
#include "core/engine/process_sets.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/group/bootstrap/wiring.h"

namespace hvd {

/// Why this generation ended, and which rank caused it.
struct Ending {
  Code code = Code::shut_down;
  int rank = kNoRank;
  std::string text;
};

/// submit() may be called from any thread; everything else by the holder of the driver token.
class Engine {
 public:
  /// Hears of the ending before any Handle completes with it, and whether it interrupts operations
  /// that are under way. It must not throw.
  using Told = std::function<void(const Ending&, bool interrupts)>;

  /// `observer`, if any, sees what happens; `carrier`, if any, moves the bytes. Both outlive the
  /// Engine.
  Engine(Wiring wiring, const Knobs& knobs, const Clock& clock, Told told,
         Observer* observer = nullptr, Carrier* carrier = nullptr);
  /// Only when finished().
  ~Engine();

  /// Queues a request, which is untouched unless it is accepted. Closed: the generation has ended,
  /// and ending() says why. Full: too many operations are in flight.
  Pushed submit(Request&& request) { return inbox_.push(std::move(request)); }
  /// The same for several, all or none.
  Pushed submit(std::span<Request> requests) { return inbox_.push_all(requests); }
  /// Queues the wish to end the job behind what was submitted before. Does nothing when it has
  /// ended.
  void submit_shutdown();
  /// Nothing while the generation goes on. From any thread.
  std::optional<Ending> ending() const { return inbox_.why_closed(); }
  /// From any thread.
  const ProcessSets& process_sets() const { return sets_; }

  /// Does what can be done now; true when anything happened. An Error ends the generation: the
  /// caller passes it to abandon() and goes on calling turn() until finished().
  bool turn();
  /// Ends the generation after a loss or a mistake: every pending operation completes with `error`,
  /// and the other ranks are told the cause. While the links are closing already it only forgets
  /// the rank.
  void abandon(const Error& error);

  bool finished() const { return state_ == State::finished; }
  /// Operations are pending or the end is under way: somebody has to call turn().
  bool busy() const;
  /// Peers wait for bytes that the sockets have not taken yet.
  bool owes_peers() const;
  /// When turn() has something to do although nothing happens.
  std::optional<TimePoint> deadline() const;

  /// Sleeps until something happens that turn() should see, or deadline().
  void wait() { wiring_.waiter->wait(deadline(), ready_); }
  /// The same for a thread without the token: returns when somebody should call turn(), and takes
  /// nothing.
  void park(std::optional<TimePoint> until) { wiring_.waiter->park(until); }
  /// After park(): what has happened is for the next turn().
  void take_events() { wiring_.waiter->poll(ready_); }
  /// Ends wait() and park(). From any thread.
  void ring() { wiring_.waiter->ring(); }
  /// Before wait() and park(), and after: tells local peers whether they must ring this rank's
  /// doorbell. Between set_asleep(true) and sleeping, turn() must have found nothing to do.
  void set_asleep(bool asleep);

 private:
  enum class State : uint8_t { running, draining, closing, finished };

  void watch_everything();
  using Requests = std::map<uint64_t, Request>;
  bool take_submissions();
  void accept(Request& request);
  Submitted announce(const Request& request, uint64_t tag);
  bool notice_ready();
  void process_ended(int rank);
  bool act();
  void act_on(Action& action);
  void enqueue(Action& action);
  Batch make_batch(const Action& action) const;
  void adopt(Runner::Job& job, uint64_t tag);
  void add_group(GroupNumber number, const std::vector<int>& members);
  void add_set(Action& action);
  void remove_set(const Action& action);
  void finish_waiting(uint64_t tag, Outcome outcome);
  bool run_batches();
  void finish(Request& request, Outcome outcome);
  void end_requests(const Ending& ending);
  void check_stalls();
  void report_stall(Root& root, const StallReport& report);
  void end(Ending ending);
  void forget(int rank);
  void begin_closing();
  bool close();

  Wiring wiring_;
  const Knobs knobs_;
  const Clock& clock_;
  Told told_;
  Carrier* const carrier_;
  Inbox<Request, Ending> inbox_;
  std::vector<Request> taken_;
  size_t accepted_ = 0;  ///< of taken_

  Control control_;
  EventSource events_;
  ProcessSets sets_;
  Runner runner_;
  Requests requests_;  ///< by tag, from acceptance to agreement
  uint64_t next_tag_ = 1;
  uint64_t join_tag_ = 0;  ///< of the join that is under way

  State state_ = State::running;
  std::optional<Ending> ending_;
  TimePoint closing_until_{};
  std::optional<TimePoint> next_tick_;
  std::vector<uint64_t> ready_;
};

}  // namespace hvd
