#include "core/capi/blocking_group.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "core/backend/host/claimed_call.h"
#include "core/backend/host/divided_call.h"
#include "core/backend/host/eager_call.h"
#include "core/backend/host/eager_link_call.h"
#include "core/backend/host/overlap.h"
#include "core/backend/host/phased_link_call.h"
#include "core/base/error.h"
#include "core/engine/patience.h"
#include "core/group/bootstrap/levels.h"
#include "core/kernel/kernel.h"
#include "core/transport/channel_watch.h"
#include "core/transport/process_watch.h"

namespace hvd {
namespace {

// What the waiter reports; a smaller tag is the rank whose process has ended.
constexpr uint64_t kDataTag = uint64_t{1} << 32;

// Nobody else in this process wants the core during a blocking call, and to go to sleep and be
// woken costs more than a small message over a link: 8 bytes among four hosts that share two cores
// 98 us instead of 160. In shared memory it is the same: np 4 on two cores, an alltoall of 1 MiB
// 195 us instead of 230.
constexpr std::chrono::microseconds kYield{300};

// Each message that comes to a socket that is watched makes the kernel walk the list of who waits
// there: np 4 on two cores, an allreduce of 8 B over loopback 20.7 us while they are watched, 19.7
// while they are not. To watch them again costs the next sleep about a microsecond a peer, so they
// are forgotten once this many calls in a row have not slept.
constexpr int kMostCallsWatched = 100;

// Below it the exchanges of addresses take longer than the copy that they save.
constexpr size_t kLeastDirect = 4 * KiB;
// Of all ranks together. More is seldom still in a cache when it is read, and results that are
// stored past the caches (decision 16) are faster then: np 2, through shared memory and directly,
// alltoall of 16 MiB 1.8 and 1.4 ms, of 64 MiB 8.7 and 11.9; np 4, of 16 MiB 4.5 and 5.4, and a
// broadcast of 64 MiB 13.6 and 26.
constexpr size_t kMostDirectOfAll = 32 * MiB;

// A process that is being killed for lack of memory may still be there when its memory is not.
constexpr std::chrono::seconds kMayBeEnding{1};

// After a loss the others are told whom they have lost, and one that goes must not take back what
// it has told: a connection that is closed with bytes unread drops those that are not sent yet. How
// long it waits for them to know.
constexpr std::chrono::seconds kFarewellAfterLoss{1};

EagerSlots* eager_slots_of(const Wiring& wiring) {
  return wiring.segment ? wiring.segment->eager_slots() : nullptr;
}

/// A chosen algorithm is the executor's.
EagerLimits unless_chosen(const Knobs& knobs, EagerLimits limits) {
  if (knobs.allreduce_algorithm != AlgorithmChoice::automatic) limits.reduced = 0;
  return limits;
}

EagerLimits eager_limits_of(const EagerSlots* slots, const Group& group) {
  if (slots != nullptr) return EagerCall::limits(*slots);
  return group.in_place() ? EagerLinkCall::limits(group.size()) : EagerLimits{};
}

/// Upper limits; may_go_directly() and plan_in_phases() know more.
EagerLimits task_limits_of(const EagerSlots* slots, const Group& group, EagerLimits eager) {
  if (slots == nullptr) {
    const size_t most = group.in_place() && group.size() > 1 ? PhasedLinkCall::kMostBytes : 0;
    eager.reduced = std::max(eager.reduced, most);
    eager.broadcast = std::max(eager.broadcast, most);
    return eager;
  }
  for (size_t* const limit : {&eager.reduced, &eager.gathered, &eager.broadcast, &eager.dealt})
    if (*limit > 0) *limit = kMostDirectOfAll;
  return eager;
}

}  // namespace

BlockingGroup::Direct::Direct(int ranks, DirectCall::HasEnded has_ended)
    : memory(ranks), has_ended(std::move(has_ended)), scratch(DirectCall::kScratchBytes) {}

BlockingGroup::BlockingGroup(Wiring wiring, const std::vector<int>& ranks, const Knobs& knobs,
                             bool spare_cores)
    : wiring_(std::move(wiring)),
      backend_(host_rules(knobs)),
      levels_(wiring_.make_levels(ranks, wants_levels(knobs))),
      members_(ProcessSet::of_all(levels_.all->size())),
      eager_slots_(eager_slots_of(wiring_)),
      eager_limits_(unless_chosen(knobs, eager_limits_of(eager_slots_, *levels_.all))),
      task_limits_(unless_chosen(knobs, task_limits_of(eager_slots_, *levels_.all, eager_limits_))),
      ranks_(ranks),
      peer_timeout_(knobs.peer_timeout),
      spare_cores_(spare_cores) {
  for (const Wiring::Watched& peer : wiring_.local_peers)
    wiring_.waiter->watch(peer.process.get(), static_cast<uint64_t>(peer.rank));
}

void BlockingGroup::begin_call() {
  if (interrupted_) {
    fail(Code::peer_lost,
         "an earlier call on this group has failed; the group can only be freed and made anew");
  }
  interrupted_ = true;
}

/// Where ranks share cores, one that found everything there would run into its next call while its
/// neighbours wait for the core, and short calls would alternate with long ones: it gives the core
/// away first. Measured for the slowest rank: 8 bytes among four hosts on two cores 56 us instead
/// of 90, np 4 on two cores 16 KiB over loopback 66 instead of 92, an allgather of 256 KiB in
/// shared memory 33 instead of 46.
void BlockingGroup::end_call(bool waited) {
  if (!spare_cores_ && !waited) sched_yield();
  interrupted_ = false;
  if (watches_sockets_ && ++calls_awake_ > kMostCallsWatched) forget_sockets();
}

void BlockingGroup::run(const EagerTask& task, const std::function<Batch()>& as_batch) {
  or_give_up([&] {
    if (overlaps_own_input(task, rank(), size()))
      run_with_private_output(task, as_batch);
    else
      run_the_fastest_way(task, as_batch);
  });
}

void BlockingGroup::run(Batch batch) {
  or_give_up([&] { run_batch(std::move(batch)); });
}

/// Where `call` throws, the other ranks learn of it, for they may be waiting for this one.
template <class Call>
void BlockingGroup::or_give_up(Call call) {
  try {
    call();
  } catch (const Error& error) {
    give_up(error.rank());
    fail(error.code(), error.what(), error.rank());
  } catch (const std::exception& error) {  // there was no memory
    give_up(kNoRank);
    fail(Code::internal, error.what());
  }
}

/// The ways of an EagerTask read the input while they write the output.
void BlockingGroup::run_with_private_output(const EagerTask& task,
                                            const std::function<Batch()>& as_batch) {
  const AlignedBuffer output(output_bytes(task, rank(), size()));
  EagerTask apart = task;
  apart.output = output.data();
  run_the_fastest_way(apart, [&] {
    Batch batch = as_batch();
    batch.tensors[0].output = output.data();
    return batch;
  });
  kernel::copy(task.output, output.data(), output.size());
}

void BlockingGroup::run_the_fastest_way(const EagerTask& task,
                                        const std::function<Batch()>& as_batch) {
  const bool is_small = task.bytes() <= eager_limits_.of(task.transfer);
  const auto run_otherwise = [&] {
    if (is_small) return exchange(task);
    if (auto plan = plan_in_phases(task)) return go_in_phases(task, std::move(plan));
    run_batch(as_batch());
  };
  Direct* const all = may_go_directly(task) ? direct() : nullptr;
  if (all == nullptr) return run_otherwise();
  FasterWay& way = all->ways[{task.transfer, task.dtype, std::bit_width(task.bytes())}];
  const bool is_trying = way.is_trying();
  const TimePoint begin = is_trying ? std::chrono::steady_clock::now() : TimePoint();
  if (way.takes_second())
    go_directly(task);
  else
    run_otherwise();
  if (is_trying)
    settle(way, std::chrono::steady_clock::now() - begin, task.bytes());
  else
    way.passed();
}

void BlockingGroup::exchange(const EagerTask& task) {
  begin_call();
  const auto drive_call = [&](auto call) { end_call(drive([&] { return call.advance(); })); };
  if (eager_slots_ == nullptr)
    drive_call(EagerLinkCall(*levels_.all, next_sequence_++, task));
  else if (ClaimedCall::suits(task, size(), spare_cores_))
    drive_call(ClaimedCall(*eager_slots_, task));
  else if (DividedCall::suits(task, size(), spare_cores_))
    drive_call(DividedCall(*eager_slots_, task));
  else
    drive_call(EagerCall(*eager_slots_, task));
}

/// Nothing where `task` takes another way.
std::shared_ptr<const Plan> BlockingGroup::plan_in_phases(const EagerTask& task) {
  if (!levels_.all->in_place() || task.prescale != 1.0) return nullptr;
  auto plan = backend_.plan_of(levels_, task);
  return plan != nullptr && PhasedLinkCall::suits(*plan, size()) ? plan : nullptr;
}

void BlockingGroup::go_in_phases(const EagerTask& task, std::shared_ptr<const Plan> plan) {
  begin_call();
  PhasedLinkCall call(*levels_.all, next_sequence_++, std::move(plan), task);
  end_call(drive([&] { return call.advance(); }));
}

bool BlockingGroup::may_go_directly(const EagerTask& task) const {
  if (eager_slots_ == nullptr || size() == 1 || task.prescale != 1.0) return false;
  if (task.bytes() < kLeastDirect) return false;
  const auto ranks = static_cast<size_t>(size());
  const size_t held = task.transfer == Transfer::allgather ? task.bytes() * ranks : task.bytes();
  return held * ranks <= kMostDirectOfAll;
}

/// The first time, all find out whether they can: nullptr where one of them cannot.
BlockingGroup::Direct* BlockingGroup::direct() {
  if (knows_direct_) return direct_.get();
  begin_call();
  auto made = std::make_unique<Direct>(size(), [this](int peer) { return has_ended(peer); });
  const auto invitations = tell(made->memory.invitation());
  bool can = true;
  for (int peer = 0; peer < size(); ++peer)
    can = can && made->memory.accept(peer, invitations[static_cast<size_t>(peer)]);
  const std::vector<char> answers = tell(static_cast<char>(can));
  end_call(true);
  knows_direct_ = true;
  if (std::ranges::all_of(answers, [](char answer) { return answer != 0; }))
    direct_ = std::move(made);
  return direct_.get();
}

void BlockingGroup::go_directly(const EagerTask& task) {
  begin_call();
  const MutableBytes scratch(direct_->scratch.data(), direct_->scratch.size());
  DirectCall call(*eager_slots_, direct_->memory, direct_->has_ended, scratch, task);
  end_call(drive([&] {
    const Run::Progress progress = call.advance();
    if (call.trouble()) fail_by(*call.trouble());
    return progress;
  }));
}

/// A rank of the group, other than this one. Those that are no longer watched have ended.
bool BlockingGroup::has_ended(int peer) const {
  const auto watched = std::ranges::find(wiring_.local_peers, peer, &Wiring::Watched::local_rank);
  return watched == wiring_.local_peers.end() || hvd::has_ended(watched->process);
}

/// Where a rank has given up, or its memory can no longer be used, the process of another one may
/// have ended before: then that one is named. The memory of a process is gone before its end is
/// told; a rank that finds it so waits for that before it gives up itself, so that whoever sees
/// that it has given up is told, too.
void BlockingGroup::fail_by(const DirectCall::Trouble& trouble) {
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

/// After a call that was a trial.
void BlockingGroup::settle(FasterWay& way, Duration took, size_t bytes) {
  if (!way.took(took, bytes)) return;
  begin_call();
  way.decide(tell(way.times()));
  end_call(true);
}

/// Returns when all ranks have called it: what each of them has told, by rank.
template <class T>
std::vector<T> BlockingGroup::tell(const T& mine) {
  std::vector<T> all(static_cast<size_t>(size()), mine);
  bool told = false;
  int seen = 0;
  drive([&] {
    told = told || eager_slots_->post_value(mine);
    for (; told && seen < size(); ++seen) {
      if (seen == rank()) continue;
      const auto value = eager_slots_->value<T>(seen);
      if (!value) return Run::Progress::waiting;
      all[static_cast<size_t>(seen)] = *value;
    }
    if (!told) return Run::Progress::waiting;
    eager_slots_->finish();
    return Run::Progress::done;
  });
  return all;
}

void BlockingGroup::run_batch(Batch batch) {
  begin_call();
  batch.sequence = next_sequence_++;
  const std::unique_ptr<Run> run = backend_.start(levels_, std::move(batch));
  const bool waited = drive([&] { return run->advance(); });
  // Between two calls nobody sends, so what the others need of this one must be gone.
  drive([&] {
    const bool moved = wiring_.mesh && wiring_.mesh->pump_unsent();
    if (!wiring_.mesh || wiring_.mesh->unsent().empty()) return Run::Progress::done;
    return moved ? Run::Progress::moved : Run::Progress::waiting;
  });
  end_call(waited);
}

void BlockingGroup::barrier() {
  std::byte one{};
  run({.transfer = Transfer::allreduce,
       .dtype = DType::uint8,
       .op = ReduceOp::max,
       .tensors = {{.input = &one, .output = &one, .shape = {1}}}});
}

/// Calls `step` until it is done; true where it had to wait. Between two calls without progress it
/// waits a little, then sleeps.
template <class Step>
bool BlockingGroup::drive(Step step) {
  Patience patience(spare_cores_, kYield);
  bool waited = false;
  for (auto progress = step(); progress != Run::Progress::done; progress = step()) {
    if (progress == Run::Progress::moved) {
      patience.renew();
      continue;
    }
    waited = true;
    if (!patience.spend()) {
      set_asleep(true);
      progress = step();  // what came before the peers knew that they must ring
      if (progress == Run::Progress::waiting) {
        heed_who_gave_up();
        wait_for_news(std::nullopt);
        if (wiring_.mesh) wiring_.mesh->pump();  // a loss may be told by one that is not awaited
      }
      set_asleep(false);
      if (progress == Run::Progress::done) break;
      patience.renew();
    }
  }
  return waited;
}

/// One that has given up an earlier call comes to no other one. It wakes who sleeps.
void BlockingGroup::heed_who_gave_up() {
  const int peer = on_one_host() ? wiring_.segment->who_has_given_up() : -1;
  if (peer >= 0) fail_by({.rank = peer});
}

void BlockingGroup::set_asleep(bool asleep) {
  if (wiring_.segment) wiring_.segment->set_asleep(asleep);
  if (!asleep || !wiring_.mesh) return;
  calls_awake_ = 0;
  watch_sockets();
  wiring_.mesh->for_each_channel(
      [&](Channel& channel) { watch_before_sleep(*wiring_.waiter, channel, kDataTag); });
}

void BlockingGroup::watch_sockets() {
  if (std::exchange(watches_sockets_, true)) return;
  wiring_.mesh->for_each_channel(
      [&](Channel& channel) { watch(*wiring_.waiter, channel, kDataTag); });
}

void BlockingGroup::forget_sockets() {
  watches_sockets_ = false;
  wiring_.mesh->for_each_channel(
      [&](Channel& channel) { unwatch(*wiring_.waiter, channel, channel.peer()); });
}

void BlockingGroup::wait_for_news(std::optional<TimePoint> until) {
  ready_.clear();
  wiring_.waiter->wait(until, ready_);
  check_processes();
}

void BlockingGroup::check_processes() {
  for (const uint64_t tag : ready_) {
    const int rank = static_cast<int>(tag);
    if (tag < kDataTag && wiring_.is_lost_with_its_process(rank)) {
      fail(Code::peer_lost,
           "rank " + std::to_string(rank) + " is lost: its process ended during a call on a group",
           rank);
    }
  }
}

/// All ranks of the group share memory, by which they tell each other everything.
bool BlockingGroup::on_one_host() const { return wiring_.segment && !wiring_.mesh; }

/// Whoever waits for this rank is told why it does not come: for the sake of `lost`, or, where that
/// is no rank, its own. Over links, a rank that looks late would otherwise see the ends of several
/// connections, and could not tell which was the first.
void BlockingGroup::give_up(int lost) {
  interrupted_ = true;  // it may have failed before the call began
  if (on_one_host()) {
    const auto at = std::ranges::find(ranks_, lost);
    wiring_.segment->give_up(at == ranks_.end() ? rank() : static_cast<int>(at - ranks_.begin()));
  }
  if (!wiring_.mesh || std::exchange(said_goodbye_, true)) return;
  wiring_.mesh->give_up(lost == kNoRank ? wiring_.identity.rank : lost);
  forget(lost);
}

void BlockingGroup::forget(int rank) {
  wiring_.mesh->for_each_channel(
      [&](Channel& channel) { unwatch(*wiring_.waiter, channel, rank); });
  wiring_.mesh->forget(rank);
}

/// Or sleeps, as long as nothing happens.
void BlockingGroup::part_a_little(TimePoint until) {
  try {
    if (wiring_.mesh->pump()) return;
    set_asleep(true);
    wait_for_news(until);
  } catch (const Error& error) {
    forget(error.rank());
  }
}

void BlockingGroup::leave() {
  if (wiring_.segment) wiring_.segment->say_goodbye();
  if (!wiring_.mesh) return;
  if (interrupted_) give_up(kNoRank);
  if (!std::exchange(said_goodbye_, true)) wiring_.mesh->say_goodbye();
  const TimePoint until = std::chrono::steady_clock::now() +
                          (interrupted_ ? Duration(kFarewellAfterLoss) : peer_timeout_);
  while (!wiring_.mesh->parted(false) && std::chrono::steady_clock::now() < until)
    part_a_little(until);
}

}  // namespace hvd
