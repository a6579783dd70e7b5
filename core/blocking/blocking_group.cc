#include "core/blocking/blocking_group.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "core/bootstrap/levels.h"
#include "core/kernel/kernel.h"
#include "core/transport/patience.h"

namespace hvd {
namespace {

// How long a call yields before it sleeps. No other thread of this process needs the core during a
// blocking call, and a sleep with a wakeup takes longer than a small message. Tuned by measurement,
// see docs/decisions/0014.
constexpr std::chrono::microseconds kYield{300};

// Sockets are removed from epoll after this many consecutive calls without sleep. Each message on a
// watched socket makes the kernel walk its wait queue; adding the sockets again delays the next
// sleep. Tuned by measurement, see docs/decisions/0014.
constexpr int kMostCallsWatched = 100;

// The OOM killer may free the memory of a process before the process ends.
constexpr std::chrono::seconds kMayBeEnding{1};

// How long leave() waits after a loss until the peers have received the name of the lost rank. A
// connection that is closed with unread bytes drops its unsent bytes.
constexpr std::chrono::seconds kFarewellAfterLoss{1};

// How long a call sleeps without any event before it looks for silent ranks, and between two looks.
// A call that waits so long does not notice what this costs.
constexpr std::chrono::milliseconds kLook{100};

/// The mesh, if the group has one.
std::vector<ChannelSet*> channel_sets_of(Wiring& wiring) {
  if (!wiring.mesh) return {};
  return {wiring.mesh.get()};
}

}  // namespace

/// As long as it lives, silent ranks are looked for.
class BlockingGroup::LookingOut {
 public:
  LookingOut(Lookout& lookout, const WaitingCall& call) : lookout_(lookout) {
    lookout_.begin(call);
  }
  ~LookingOut() { lookout_.end(); }
  LookingOut(const LookingOut&) = delete;
  LookingOut& operator=(const LookingOut&) = delete;

 private:
  Lookout& lookout_;
};

BlockingGroup::Attached::Attached(int ranks, CrossMemoryCall::HasEnded has_ended)
    : memory(ranks),
      has_ended(std::move(has_ended)),
      scratch(CrossMemoryCall::kScratchBytes),
      cross{this->memory, this->has_ended, MutableBytes(scratch.data(), scratch.size())} {}

BlockingGroup::BlockingGroup(Wiring wiring, const std::vector<int>& ranks, const Knobs& knobs,
                             bool spare_cores)
    : wiring_(std::move(wiring)),
      backend_(host_rules(knobs)),
      levels_(wiring_.make_levels(ranks, wants_levels(knobs))),
      connections_(wiring_, channel_sets_of(wiring_)),
      ways_(levels_, backend_, Ways::rules_of(knobs, spare_cores)),
      task_limits_(ways_.limits()),
      ranks_(ranks),
      peer_timeout_(knobs.peer_timeout),
      spare_cores_(spare_cores) {}

void BlockingGroup::begin_call() {
  if (interrupted_) {
    fail(Code::peer_lost,
         "an earlier call on this group has failed; the group can only be freed and made anew");
  }
  interrupted_ = true;
}

/// If the host is oversubscribed, a rank that did not have to wait yields the core before its next
/// call. Otherwise it would start that call while ranks on the same core wait for the core, and
/// short calls would alternate with long ones. Measurements: docs/decisions/0014.
void BlockingGroup::end_call(bool waited) {
  if (!spare_cores_ && !waited) sched_yield();
  interrupted_ = false;
  if (connections_.watches_sockets() && ++calls_awake_ > kMostCallsWatched)
    connections_.forget_sockets();
}

void BlockingGroup::run(const TensorTask& task, const std::function<Batch()>& as_batch) {
  or_give_up(task.operation.kind, [&] {
    if (overlaps_own_input(task, rank(), size()))
      run_with_private_output(task, as_batch);
    else
      run_task(task, as_batch);
  });
}

void BlockingGroup::run(Batch batch) {
  or_give_up(batch.operation.kind, [&] { run_batch(std::move(batch)); });
}

/// Runs `call`. If it throws, informs the other ranks, which may be waiting for this rank.
template <class Call>
void BlockingGroup::or_give_up(OperationKind kind, Call call) {
  kind_ = kind;
  ++calls_;
  try {
    call();
  } catch (const Error& error) {
    give_up(error.rank());
    fail(error.code(), error.what(), error.rank());
  } catch (const std::exception& error) {  // out of memory
    give_up(kNoRank);
    fail(Code::internal, error.what());
  }
}

/// For overlapping input and output: the algorithms of a TensorTask write the output while they
/// read the input.
void BlockingGroup::run_with_private_output(const TensorTask& task,
                                            const std::function<Batch()>& as_batch) {
  const AlignedBuffer output(output_bytes(task, rank(), size()));
  TensorTask apart = task;
  apart.output = output.data();
  run_task(apart, [&] {
    Batch batch = as_batch();
    batch.tensors[0].output = output.data();
    return batch;
  });
  kernel::copy(task.output, output.data(), output.size());
}

void BlockingGroup::run_task(const TensorTask& task, const std::function<Batch()>& as_batch) {
  const Ways::Choice choice = ways_.choose(task);
  Attached* const all = choice.rival ? attached() : nullptr;
  if (all == nullptr) return run_by(choice.way, choice, task, as_batch);
  const Operation& operation = task.operation;
  TimedChoice& timed =
      all->choices[{operation.kind, operation.dtype, std::bit_width(task.bytes())}];
  const bool is_trying = timed.is_trying();
  const TimePoint begin = is_trying ? std::chrono::steady_clock::now() : TimePoint();
  run_by(timed.takes_second() ? *choice.rival : choice.way, choice, task, as_batch);
  if (is_trying)
    settle(timed, std::chrono::steady_clock::now() - begin, task.bytes());
  else
    timed.passed();
}

void BlockingGroup::run_by(Way way, const Ways::Choice& choice, const TensorTask& task,
                           const std::function<Batch()>& as_batch) {
  if (way == Way::executor) return run_batch(as_batch());
  begin_call();
  WayCall call;
  ways_.start(way,
              {.task = task,
               .sequence = next_sequence_++,
               .plan = choice.plan,
               .cross = attached_ ? &attached_->cross : nullptr},
              call);
  end_call(drive([&] { return advance(call); }));
}

Progress BlockingGroup::advance(WayCall& call) {
  const Progress progress = hvd::advance(call);
  const auto* cross_memory = std::get_if<CrossMemoryCall>(&call);
  if (cross_memory != nullptr && cross_memory->trouble()) fail_by(*cross_memory->trouble());
  return progress;
}

/// Returns the state for CMA, nullptr if any rank cannot use it. The first call is collective: all
/// ranks test whether they can access the memory of all others.
BlockingGroup::Attached* BlockingGroup::attached() {
  if (knows_attached_) return attached_.get();
  begin_call();
  auto made =
      std::make_unique<Attached>(size(), [this](int peer) { return connections_.has_ended(peer); });
  const auto invitations = tell(made->memory.invitation());
  bool can = true;
  for (int peer = 0; peer < size(); ++peer)
    can = can && made->memory.accept(peer, invitations[static_cast<size_t>(peer)]);
  const std::vector<char> answers = tell(static_cast<char>(can));
  end_call(true);
  knows_attached_ = true;
  if (std::ranges::all_of(answers, [](char answer) { return answer != 0; }))
    attached_ = std::move(made);
  return attached_.get();
}

/// Throws after a rank has given up a call or its memory cannot be accessed. If another process has
/// ended before, that rank is the cause and is named. The memory of a process disappears before its
/// end is reported, so this rank waits for the report before it gives up itself. All ranks then
/// name the rank that ended.
void BlockingGroup::fail_by(const CrossMemoryCall::Trouble& trouble) {
  Duration patience{};
  if (trouble.error != 0) patience = trouble.error == ESRCH ? peer_timeout_ : kMayBeEnding;
  const TimePoint until = std::chrono::steady_clock::now() + patience;
  do wait_for_news(until);
  while (std::chrono::steady_clock::now() < until);
  const int rank = ranks_[static_cast<size_t>(trouble.rank)];
  const std::string name = "rank " + std::to_string(rank);
  if (trouble.error == 0)
    fail(Code::peer_lost, name + " has given up a call on a group; its own error says why", rank);
  const Code code = trouble.error == ESRCH ? Code::peer_lost : Code::internal;
  fail(code,
       "tensors cannot be copied between this rank and " + name +
           " in a call on a group: " + std::generic_category().message(trouble.error),
       rank);
}

/// Records the time of a trial call. After the last trial, all ranks exchange times and decide.
void BlockingGroup::settle(TimedChoice& choice, Duration took, size_t bytes) {
  if (!choice.took(took, bytes)) return;
  begin_call();
  choice.decide(tell(choice.times()));
  end_call(true);
}

/// Exchanges one value per rank. Blocks until all ranks have called it. Returns the values by rank.
template <class T>
std::vector<T> BlockingGroup::tell(const T& mine) {
  std::vector<T> all(static_cast<size_t>(size()), mine);
  EagerBuffers& buffers = *levels_.all->eager_buffers();
  bool told = false;
  int seen = 0;
  drive([&] {
    told = told || buffers.post_value(mine);
    for (; told && seen < size(); ++seen) {
      if (seen == rank()) continue;
      const auto value = buffers.value<T>(seen);
      if (!value) return Progress::waiting;
      all[static_cast<size_t>(seen)] = *value;
    }
    if (!told) return Progress::waiting;
    buffers.finish();
    return Progress::done;
  });
  return all;
}

void BlockingGroup::run_batch(Batch batch) {
  begin_call();
  batch.sequence = next_sequence_++;
  const std::unique_ptr<Run> run = backend_.start(levels_, std::move(batch));
  const bool waited = drive([&] { return run->advance(); });
  // No data is sent between two calls, so all data of this call must be sent now.
  drive([&] {
    const bool moved = wiring_.mesh && wiring_.mesh->pump_unsent();
    if (!wiring_.mesh || wiring_.mesh->unsent().empty()) return Progress::done;
    return moved ? Progress::moved : Progress::waiting;
  });
  end_call(waited);
}

void BlockingGroup::barrier() {
  std::byte one{};
  Batch batch{
      .operation = {.kind = OperationKind::allreduce, .dtype = DType::uint8, .op = ReduceOp::max},
      .tensors = {{.input = &one, .output = &one, .shape = {1}}}};
  or_give_up(OperationKind::barrier, [&] { run_batch(std::move(batch)); });
}

/// Calls `step` until it is done. Returns whether it had to wait. Without progress it first yields,
/// then sleeps.
template <class Step>
bool BlockingGroup::drive(Step step) {
  Patience patience(spare_cores_, kYield);
  std::optional<LookingOut> looking_out;
  bool waited = false;
  for (auto progress = step(); progress != Progress::done; progress = step()) {
    if (progress == Progress::moved) {
      patience.renew();
      continue;
    }
    waited = true;
    if (!patience.spend()) {
      set_asleep(true);
      progress = step();  // data that arrived before the peers saw that this rank sleeps
      if (progress == Progress::waiting) {
        fail_if_a_peer_gave_up();
        wait_and_look(looking_out);
        if (wiring_.mesh) wiring_.mesh->pump();  // any peer may report a loss
      }
      set_asleep(false);
      if (progress == Progress::done) break;
      patience.renew();
    }
  }
  return waited;
}

/// A rank that has given up a call does not take part in later calls. It wakes sleeping ranks.
void BlockingGroup::fail_if_a_peer_gave_up() {
  const int peer = on_one_host() ? wiring_.segment->who_has_given_up() : -1;
  if (peer >= 0) fail_by({.rank = peer});
}

void BlockingGroup::set_asleep(bool asleep) {
  if (asleep) calls_awake_ = 0;
  connections_.set_asleep(asleep);
}

/// Sleeps until an event, or until it is time to look for silent ranks.
void BlockingGroup::wait_and_look(std::optional<LookingOut>& looking_out) {
  if (!lookout_) return wait_for_news(std::nullopt);
  const TimePoint until = std::chrono::steady_clock::now() + kLook;
  wait_for_news(until);
  if (std::chrono::steady_clock::now() < until) return;
  if (!looking_out) looking_out.emplace(*lookout_, WaitingCall{kind_, calls_, until - kLook});
  if (const auto loss = lookout_->loss(ranks_))
    fail(loss->code(), std::string("a call on a group: ") + loss->what(), loss->rank());
}

void BlockingGroup::wait_for_news(std::optional<TimePoint> until) {
  connections_.wait(until);
  for (const int rank : connections_.take_news().lost)
    fail(Code::peer_lost,
         "rank " + std::to_string(rank) + " is lost: its process ended during a call on a group",
         rank);
}

/// Whether all ranks of the group communicate through one shared-memory segment.
bool BlockingGroup::on_one_host() const { return wiring_.segment && !wiring_.mesh; }

/// Tells the peers why this rank fails: because of the rank `lost`, or by itself if `lost` is
/// kNoRank. Over links a peer may find several closed connections and could not tell which was
/// closed first.
void BlockingGroup::give_up(int lost) {
  interrupted_ = true;  // it may have failed before the call began
  if (on_one_host()) {
    const auto at = std::ranges::find(ranks_, lost);
    wiring_.segment->give_up(at == ranks_.end() ? rank() : static_cast<int>(at - ranks_.begin()));
  }
  if (!wiring_.mesh || std::exchange(said_goodbye_, true)) return;
  wiring_.mesh->give_up(lost == kNoRank ? wiring_.identity.rank : lost);
  connections_.forget(lost);
}

/// Makes progress on the farewell, or sleeps until an event or `until`.
void BlockingGroup::part_a_little(TimePoint until) {
  try {
    if (wiring_.mesh->pump()) return;
    set_asleep(true);
    wait_for_news(until);
  } catch (const Error& error) {
    connections_.forget(error.rank());
  }
}

void BlockingGroup::leave() {
  if (wiring_.segment) wiring_.segment->say_goodbye();
  if (!wiring_.mesh) return;
  if (interrupted_) give_up(kNoRank);
  if (!std::exchange(said_goodbye_, true)) wiring_.mesh->say_goodbye();
  const TimePoint until = std::chrono::steady_clock::now() +
                          (interrupted_ ? Duration(kFarewellAfterLoss) : peer_timeout_);
  while (!connections_.parted(false) && std::chrono::steady_clock::now() < until)
    part_a_little(until);
}

}  // namespace hvd
