#include "core/engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/group/bootstrap/levels.h"
#include "core/negotiate/stall.h"
#include "core/transport/channel_watch.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;

// What epoll reports: a peer's process, or that sockets have something for pump().
constexpr uint64_t kProcessTag = uint64_t{1} << 32;  // plus the rank
constexpr uint64_t kControlTag = uint64_t{2} << 32;
constexpr uint64_t kDataTag = uint64_t{3} << 32;

// After a loss the links only need to take what is queued for them; nobody waits for answers.
constexpr auto kFlushAfterLoss = 100ms;

NegotiateOptions options_of(const Knobs& knobs) {
  NegotiateOptions options;
  options.fusion_bytes = static_cast<uint64_t>(knobs.fusion_bytes);
  options.slot_capacity = static_cast<uint32_t>(knobs.cache_capacity);
  return options;
}

std::string quoted(const Request& request) {
  if (request.kind == Request::Kind::join) return "join";
  return fmt::format("{} \"{}\"", name_of(request.signature.kind), request.name);
}

Outcome outcome_of(const Ending& ending, const Request& request) {
  return {ending.code, quoted(request) + ": " + ending.text, ending.rank};
}

std::string_view why_refused(Submitted why) {
  switch (why) {
    case Submitted::duplicate_name:
      return "an operation of this name is still in flight on this rank; wait for it, or give each "
             "its own name";
    case Submitted::joined:
      return "this rank has joined and may not submit until all ranks have joined";
    case Submitted::not_a_member:
      return "the process set has been removed";
    case Submitted::accepted:
    case Submitted::ended:
      break;
  }
  HVD_ASSERT(false);
}

Ending ending_of(const Action& action) {
  if (action.lost) {
    return {Code::peer_lost, action.rank,
            fmt::format("rank {0} is lost: {1}. The job has ended; look for the cause in the "
                        "output of rank {0}",
                        action.rank, action.text)};
  }
  if (!action.text.empty()) return {Code::shut_down, action.rank, action.text};
  return {Code::shut_down, action.rank,
          fmt::format("rank {0} has shut the job down: it called hvd.shutdown(), or its script "
                      "ended; look for the first error in the output of rank {0}",
                      action.rank)};
}

Transfer transfer_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::allreduce:
      return Transfer::allreduce;
    case OperationKind::allgather:
      return Transfer::allgather;
    case OperationKind::broadcast:
      return Transfer::broadcast;
    case OperationKind::alltoall:
      return Transfer::alltoall;
    case OperationKind::reducescatter:
      return Transfer::reducescatter;
    case OperationKind::barrier:
    case OperationKind::add_process_set:
    case OperationKind::remove_process_set:
      break;  // nothing to move
  }
  HVD_ASSERT(false);
}

}  // namespace

Engine::Engine(Wiring wiring, const Knobs& knobs, const Clock& clock, Told told, Observer* observer,
               Carrier* carrier)
    : wiring_(std::move(wiring)),
      knobs_(knobs),
      clock_(clock),
      told_(std::move(told)),
      carrier_(carrier),
      control_(wiring_, options_of(knobs)),
      events_(observer, clock, wiring_.identity.rank, carrier != nullptr),
      sets_(wiring_.identity.size),
      runner_(host_rules(knobs), carrier, events_) {
  add_group(kWorldGroup, sets_.find(ProcessSets::kWorldId)->ranks);
  watch_everything();
}

Engine::~Engine() { HVD_ASSERT(finished()); }

void Engine::watch_everything() {
  for (const Wiring::Watched& peer : wiring_.local_peers)
    wiring_.waiter->watch(peer.process.get(), kProcessTag + static_cast<uint64_t>(peer.rank));
  const auto watch_as = [&](uint64_t tag) {
    return [=, this](Channel& channel) { watch(*wiring_.waiter, channel, tag); };
  };
  control_.for_each_channel(watch_as(kControlTag));
  if (wiring_.mesh) wiring_.mesh->for_each_channel(watch_as(kDataTag));
}

bool Engine::busy() const {
  return !requests_.empty() || !runner_.idle() || !inbox_.empty() ||
         (state_ != State::running && state_ != State::finished);
}

bool Engine::owes_peers() const {
  return control_.has_unsent() || (wiring_.mesh && !wiring_.mesh->unsent().empty());
}

bool Engine::turn() {
  if (state_ == State::finished) return false;
  bool moved = notice_ready();
  if (state_ == State::closing) return close() || moved;
  moved |= take_submissions();
  moved |= control_.pump();
  moved |= act();
  moved |= run_batches();
  if (wiring_.mesh) moved |= wiring_.mesh->pump_unsent();  // what peers still wait for
  check_stalls();
  if (state_ == State::draining && runner_.idle()) {
    begin_closing();
    moved = true;
  }
  return moved;
}

// ---- what epoll has seen
// ---------------------------------------------------------------------------

void Engine::set_asleep(bool asleep) {
  if (wiring_.segment) wiring_.segment->set_asleep(asleep);
  if (!asleep) return;
  const auto arm = [&](uint64_t tag) {
    return [=, this](Channel& channel) { watch_before_sleep(*wiring_.waiter, channel, tag); };
  };
  control_.for_each_channel(arm(kControlTag));
  if (wiring_.mesh) wiring_.mesh->for_each_channel(arm(kDataTag));
}

bool Engine::notice_ready() {
  if (wiring_.mesh) wiring_.waiter->poll(ready_);
  bool data = false;
  for (const uint64_t tag : std::exchange(ready_, {})) {
    data |= tag == kDataTag;
    if (tag >= kProcessTag && tag < kControlTag) process_ended(static_cast<int>(tag - kProcessTag));
  }
  return data && state_ != State::closing && wiring_.mesh->pump();
}

// A process that ended without a goodbye is lost.
void Engine::process_ended(int rank) {
  if (!wiring_.is_lost_with_its_process(rank)) return;
  if (state_ == State::closing) return forget(rank);
  fail(Code::peer_lost, "its process ended without hvd.shutdown(): it was killed, crashed or left",
       rank);
}

// ---- submissions
// -----------------------------------------------------------------------------------

void Engine::submit_shutdown() {
  Request request;
  request.kind = Request::Kind::shutdown;
  inbox_.push_beyond_limit(std::move(request));
}

// A request is at every moment in one place where end() finds it, so that no error in between, not
// even want of memory, leaves a Handle that never completes.
bool Engine::take_submissions() {
  if (taken_.empty()) inbox_.drain(taken_);  // else an error has interrupted the last call
  const bool any = !taken_.empty();
  while (accepted_ < taken_.size()) accept(taken_[accepted_]);
  taken_.clear();
  accepted_ = 0;
  return any;
}

void Engine::accept(Request& request) {
  if (request.kind == Request::Kind::shutdown) {
    ++accepted_;
    return control_.shutdown();
  }
  const uint64_t tag = next_tag_++;
  const auto place = requests_.try_emplace(requests_.end(), tag, std::move(request));
  ++accepted_;
  const Request& kept = place->second;
  const Submitted result = announce(kept, tag);
  if (result == Submitted::accepted) return events_.ready(kept);
  if (result == Submitted::ended) return finish_waiting(tag, outcome_of(*ending_, kept));
  finish_waiting(tag,
                 {Code::invalid_argument, fmt::format("{}: {}", quoted(kept), why_refused(result)),
                  wiring_.identity.rank});
}

Submitted Engine::announce(const Request& request, uint64_t tag) {
  if (request.kind == Request::Kind::operation)
    return control_.submit(request.group, request.name, request.signature, tag);
  if (ending_) return Submitted::ended;
  if (!control_.join()) return Submitted::joined;
  join_tag_ = tag;
  return Submitted::accepted;
}

// ---- what was agreed
// -------------------------------------------------------------------------------

bool Engine::act() {
  std::vector<Action> actions = control_.take_actions();
  if (!actions.empty()) events_.cycle();
  for (Action& action : actions) act_on(action);
  return !actions.empty();
}

void Engine::act_on(Action& action) {
  switch (action.type) {
    case Action::Type::run:
      return enqueue(action);
    case Action::Type::fail:
      return finish_waiting(action.tag, {Code::mismatch, std::move(action.text), kNoRank});
    case Action::Type::ended:
      return end(ending_of(action));
    case Action::Type::joined:
      requests_.at(join_tag_).operation->number = action.rank;
      return finish_waiting(join_tag_, {});
    case Action::Type::set_added:
      return add_set(action);
    case Action::Type::set_removed:
      return remove_set(action);
  }
}

void Engine::finish_waiting(uint64_t tag, Outcome outcome) {
  const auto found = requests_.find(tag);
  HVD_ASSERT(found != requests_.end());
  finish(found->second, std::move(outcome));
  requests_.erase(found);
}

void Engine::enqueue(Action& action) {
  Runner::Job job{.group = action.group};
  if (action.bound.front().signature->kind != OperationKind::barrier)
    job.batch.emplace(make_batch(action));
  job.bound = std::move(action.bound);
  job.requests.reserve(job.bound.size());
  Runner::Job& queued = runner_.enqueue(std::move(job));
  for (const Bound& bound : queued.bound) {
    if (bound.mine) adopt(queued, bound.tag);
  }
}

// The job has room for it.
void Engine::adopt(Runner::Job& job, uint64_t tag) {
  const auto found = requests_.find(tag);
  HVD_ASSERT(found != requests_.end());
  events_.agreed(found->second);
  job.requests.push_back(std::move(found->second));
  requests_.erase(found);
}

Batch Engine::make_batch(const Action& action) const {
  const Signature& agreed = action.bound.front().signature;
  Batch batch{.sequence = action.sequence,
              .transfer = transfer_of(agreed.kind),
              .dtype = agreed.dtype,
              .op = agreed.op,
              .prescale = agreed.prescale,
              .postscale = agreed.postscale};
  if (agreed.kind == OperationKind::broadcast)
    batch.root = sets_.find_group(action.group)->rank_of(agreed.root);
  for (const Bound& bound : action.bound) {
    if (bound.mine) {
      const auto& tensors = requests_.at(bound.tag).tensors;
      batch.tensors.insert(batch.tensors.end(), tensors.begin(), tensors.end());
    } else {  // this rank has joined: the backend makes neutral elements of these shapes
      for (const Shape& shape : bound.signature->shapes) batch.tensors.push_back({.shape = shape});
    }
  }
  return batch;
}

void Engine::add_group(GroupNumber number, const std::vector<int>& members) {
  const bool levels = carrier_ == nullptr && wants_levels(knobs_);
  GroupLevels group = wiring_.make_levels(members, levels);
  if (carrier_ != nullptr) carrier_->enter(*group.all, members);
  runner_.add_group(number, std::move(group));
}

void Engine::add_set(Action& action) {
  const auto& members = action.members;
  if (std::binary_search(members.begin(), members.end(), wiring_.identity.rank))
    add_group(action.group, members);
  requests_.at(action.tag).operation->number = sets_.add(action.group, std::move(action.members));
  finish_waiting(action.tag, {});
}

// From here on the set is unknown; its group goes behind the batches that still run on it.
void Engine::remove_set(const Action& action) {
  Runner::Job job{.group = action.group, .closes_group = true};
  job.requests.reserve(1);
  adopt(runner_.enqueue(std::move(job)), action.tag);
  sets_.remove(action.group);
}

bool Engine::run_batches() {
  switch (runner_.advance()) {
    case Runner::Progress::idle:
    case Runner::Progress::waiting:
      return false;
    case Runner::Progress::moved:
      return true;
    case Runner::Progress::finished:
      break;
  }
  const Runner::Job& done = runner_.finished();
  if (!done.closes_group) control_.batch_done(done.group, done.bound);
  Runner::Job job = runner_.take_finished();
  for (Request& request : job.requests) finish(request, {});
  return true;
}

void Engine::finish(Request& request, Outcome outcome) {
  events_.done(request);
  if (request.release) request.release();
  if (request.ended) request.ended(outcome);
  std::exchange(request.operation, nullptr)->handle.complete(std::move(outcome));
}

// ---- stalls
// ----------------------------------------------------------------------------------------

// Who carries for us rings no bell: while a batch runs, one must look again and again.
std::optional<TimePoint> Engine::deadline() const {
  if (carrier_ != nullptr && !runner_.idle()) return clock_.now();
  return state_ == State::closing ? closing_until_ : next_tick_;
}

void Engine::check_stalls() {
  if (knobs_.stall_check_disable) return;
  if (control_.waiting() == 0 && !control_.collecting()) {
    next_tick_.reset();
    return;
  }
  const TimePoint now = clock_.now();
  if (!next_tick_) {
    next_tick_ = now + knobs_.stall_check;
  } else if (now >= *next_tick_) {
    next_tick_ = now + knobs_.stall_check;
    control_.tick();
  }
  if (Root* root = control_.root()) {
    if (const std::optional<StallReport> report = root->take_report()) report_stall(*root, *report);
  }
}

void Engine::report_stall(Root& root, const StallReport& report) {
  const StallFacts facts{.process_sets = root.process_sets(),
                         .tick = knobs_.stall_check,
                         .shutdown = knobs_.stall_shutdown};
  const std::string text = describe_stall(report, facts);
  if (text.empty()) return;
  const bool ends_job = stall_ends_job(report, facts);
  log(ends_job ? LogLevel::error : LogLevel::warning, text);
  if (ends_job) root.shutdown(wiring_.identity.rank, text);
}

// ---- the end
// ---------------------------------------------------------------------------------------

void Engine::end(Ending ending) {
  const bool was_draining = state_ == State::draining;
  inbox_.close(ending);
  told_(ending, busy());
  ending_ = std::move(ending);
  take_submissions();  // what came before the inbox closed is refused with the ending
  end_requests(*ending_);
  if (ending_->code == Code::shut_down) {
    state_ = State::draining;
    return;
  }
  for (Runner::Job& job : runner_.abandon()) {
    for (Request& request : job.requests) {
      if (request.operation) finish(request, outcome_of(*ending_, request));
    }
  }
  runner_.drop_all();
  // Nobody listens to causes any more: links that end without a goodbye tell the others that what
  // was agreed will not complete.
  if (was_draining) {
    state_ = State::finished;
  } else {
    begin_closing();
  }
}

void Engine::end_requests(const Ending& ending) {
  while (!requests_.empty()) {
    const auto& [tag, request] = *requests_.begin();
    finish_waiting(tag, outcome_of(ending, request));
  }
}

void Engine::forget(int rank) {
  const auto unwatch_it = [&](Channel& channel) { unwatch(*wiring_.waiter, channel, rank); };
  control_.for_each_channel(unwatch_it);
  control_.forget(rank);
  if (!wiring_.mesh) return;
  wiring_.mesh->for_each_channel(unwatch_it);
  wiring_.mesh->forget(rank);
}

void Engine::abandon(const Error& error) {
  if (error.rank() != kNoRank) forget(error.rank());
  if (state_ == State::closing && error.rank() == kNoRank) state_ = State::finished;
  if (state_ == State::closing || state_ == State::finished) return;
  if (state_ == State::running) {
    control_.lose(error.rank() == kNoRank ? wiring_.identity.rank : error.rank(), error.what());
    act();  // ends with the text that all ranks get
  }
  if (state_ == State::running || state_ == State::draining)
    end({error.code(), error.rank(), error.what()});
}

void Engine::begin_closing() {
  const bool lost = ending_->code != Code::shut_down;
  closing_until_ =
      clock_.now() + (lost ? Duration(kFlushAfterLoss) : Duration(knobs_.peer_timeout));
  state_ = State::closing;
  control_.say_goodbye();
  if (wiring_.mesh) wiring_.mesh->say_goodbye();
  if (wiring_.segment) wiring_.segment->say_goodbye();
}

bool Engine::close() {
  bool moved = control_.pump();
  if (wiring_.mesh) moved |= wiring_.mesh->pump();
  const bool lost = ending_->code != Code::shut_down;
  const bool parted = control_.parted(lost) && (!wiring_.mesh || wiring_.mesh->parted(lost));
  if (!parted && clock_.now() < closing_until_) return moved;
  state_ = State::finished;
  return true;
}

}  // namespace hvd
