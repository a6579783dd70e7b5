#include "core/engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;

// Bit of the mesh in Connections::News::readable: it is the second channel set.
constexpr uint64_t kDataReadable = 2;

// How long queued data is flushed after a loss. No answers are expected.
constexpr auto kFlushAfterLoss = 100ms;
constexpr auto kDevicePoll = 1ms;  // while the ranks end their device work

NegotiateOptions options_of(const Knobs& knobs) {
  NegotiateOptions options;
  options.fusion_bytes = static_cast<uint64_t>(knobs.fusion_bytes);
  options.slot_capacity = static_cast<uint32_t>(knobs.cache_capacity);
  return options;
}

}  // namespace

Engine::Engine(Wiring wiring, const Knobs& knobs, const Clock& clock, Told told,
               const MakeBackends& make_backends, Observer* observer, RankBoard* board)
    : wiring_(std::move(wiring)),
      knobs_(knobs),
      clock_(clock),
      told_(std::move(told)),
      backends_(make_backends()),
      control_(wiring_, options_of(knobs)),
      connections_(wiring_, channel_sets()),
      events_(observer, counters_, clock, wiring_.identity.rank),
      stall_watch_(control_, events_, knobs_, clock, wiring_.identity.rank),
      self_report_(board, clock, group_calls_),
      heartbeat_(control_, wiring_, clock, knobs.heartbeat),
      launcher_watch_({wiring_.identity.store_host, wiring_.identity.store_port},
                      wiring_.identity.rank, clock),
      sets_(wiring_.identity.size),
      runner_(backends_, events_) {
  add_group(kWorldGroup, sets_.find(ProcessSets::kWorldId)->ranks);
  connections_.watch_sockets();
  if (wiring_.mesh) wiring_.mesh->leave_reasons();
  if (board != nullptr) board->set_doorbell(wiring_.waiter->doorbell_fd());
  control_.greet();
}

Engine::~Engine() { HVD_ASSERT(finished()); }

std::vector<ChannelSet*> Engine::channel_sets() {
  std::vector<ChannelSet*> sets{&control_};
  if (wiring_.mesh) sets.push_back(wiring_.mesh.get());
  return sets;
}

bool Engine::busy() const {
  return !requests_.empty() || !runner_.idle() || !inbox_.empty() ||
         (state_ != State::running && state_ != State::finished);
}

bool Engine::turn() {
  if (state_ == State::finished) return false;
  if (self_report_.is_asked()) report_state();
  if (wiring_.mesh) connections_.poll();
  const Connections::News news = connections_.take_news();
  if (news.left_by_launcher) launcher_watch_.connection_ended();
  bool moved = !news.lost.empty();
  for (const int rank : news.lost) lose_process(rank);
  if (state_ == State::closing) return close() || moved;
  moved |= take_submissions();
  moved |= control_.pump();
  moved |= act();
  if (state_ == State::draining) heed_reports();
  // After the control plane, which tells why connections were closed.
  const bool has_data = (news.readable & kDataReadable) != 0 && state_ != State::closing;
  if (has_data) moved |= wiring_.mesh->pump();
  moved |= run_batches();
  if (wiring_.mesh) moved |= wiring_.mesh->pump_unsent();  // peers wait for this data
  stall_watch_.check(requests_);
  look_for_silence(moved);
  look_for_launcher();
  if (state_ == State::draining && runner_.idle()) moved |= leave_devices();
  return moved;
}

// ---- events of epoll
// ---------------------------------------------------------------------------

void Engine::lose_process(int rank) {
  if (state_ == State::closing) {
    abandon_backends();
    return connections_.forget(rank);
  }
  fail(Code::peer_lost, "its process ended without hvd.shutdown(): it was killed, crashed or left",
       rank);
}

// Ranks that are running act on causes that come through the tree. Those that drain have ended
// there, and may wait for data of ranks that end after a loss.
void Engine::heed_reports() {
  if (const auto cause = told_cause()) fail(cause->code(), cause->what(), cause->rank());
}

// Reading the clock would slow down turns that have work.
void Engine::look_for_silence(bool moved) {
  constexpr uint32_t kTurnsBetweenLooks = 64, kTurnsBetweenPolls = 1024;
  if (state_ == State::closing || (moved && ++turns_ % kTurnsBetweenLooks != 0)) return;
  // The loss of the launcher stops no operation, so that ranks may never sleep.
  if (moved && turns_ % kTurnsBetweenPolls == 0) connections_.poll();
  const bool pending = !requests_.empty() || !runner_.idle() || !inbox_.empty() ||
                       state_ == State::draining || awaits_end_ ||
                       waiting_calls_.load(std::memory_order_relaxed) > 0;
  if (const auto silence = heartbeat_.check(pending)) give_up(*silence);
}

// Unlike a rank whose connection is closed, it is told: it may wake up.
void Engine::give_up(const Heartbeat::Silence& silence) {
  silence_ = silence;
  if (state_ == State::draining) {
    connections_.dismiss(silence.rank);
    fail(Code::peer_lost, silence.text, silence.rank);
  }
  control_.lose_silent(silence.rank, silence.text);
  connections_.forget(silence.rank);
  act();
}

// The first rank that sees it tells the others. In shutdown, ranks need the launcher no more.
void Engine::look_for_launcher() {
  if (state_ != State::running) return launcher_watch_.forget();
  const auto loss = launcher_watch_.check();
  if (!loss) return;
  control_.lose(kLostLauncher, *loss);
  act();
}

// ---- submissions
// -----------------------------------------------------------------------------------

std::optional<Refusal> Engine::submit(std::span<Request> requests) {
  if (const Request* taken = names_.add(requests))
    return Refusal{Refusal::Why::name_in_flight, taken};
  const Pushed pushed = inbox_.push_all(requests);
  if (pushed == Pushed::accepted) return std::nullopt;
  names_.remove(requests);
  return Refusal{pushed == Pushed::full ? Refusal::Why::full : Refusal::Why::closed,
                 requests.data()};
}

// Every request is always in a container that end() searches. So no error, including bad_alloc,
// leaves a Handle that never completes.
bool Engine::take_submissions() {
  if (taken_.empty()) inbox_.drain(taken_);  // otherwise an error has interrupted the last call
  const bool any = !taken_.empty();
  if (any) self_report_.begin_turn();
  while (accepted_ < taken_.size()) accept(taken_[accepted_]);
  taken_.clear();
  accepted_ = 0;
  if (any) events_.announced(control_.announced());
  return any;
}

void Engine::accept(Request& request) {
  if (request.ends_job) {
    ++accepted_;
    awaits_end_ = true;
    return control_.shutdown();
  }
  const uint64_t tag = next_tag_++;
  const auto place = requests_.try_emplace(requests_.end(), tag, std::move(request));
  ++accepted_;
  Request& kept = place->second;
  self_report_.accepted(kept);
  const Submitted result = announce(kept, tag);
  if (result == Submitted::accepted) {
    stall_watch_.accepted(kept);
    return events_.ready(kept);
  }
  if (result == Submitted::ended) return finish_waiting(tag, outcome_of(*ending_, kept));
  finish_waiting(tag,
                 {Code::invalid_argument, fmt::format("{}: {}", quoted(kept), why_refused(result)),
                  wiring_.identity.rank});
}

Submitted Engine::announce(const Request& request, uint64_t tag) {
  if (!request.joins()) return control_.submit(request.group, request.name, request.signature, tag);
  if (ending_) return Submitted::ended;
  if (!control_.join()) return Submitted::joined;
  join_tag_ = tag;
  return Submitted::accepted;
}

// ---- verdicts
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
      return end(ending_of(action, action.rank == wiring_.identity.rank && !has_failed_,
                           ended_by(action.rank)));
    case Action::Type::joined:
      requests_.at(join_tag_).completion->number = action.rank;
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
  self_report_.batch_agreed();
  const Signature& agreed = action.bound.front().signature;
  if (moves_tensors(agreed.operation.kind)) job.batch.emplace(make_batch(action));
  if (agreed.operation.kind == OperationKind::message) {
    job.between = agreed.members;
    job.is_paced = true;
    add_pair(job.between);
  }
  job.bound = std::move(action.bound);
  job.requests.reserve(job.bound.size());
  Runner::Job& queued = runner_.enqueue(std::move(job));
  for (const Bound& bound : queued.bound)
    if (bound.mine) adopt(queued, bound.tag);
}

// Moves the request with `tag` to `job`, which has reserved memory for it.
void Engine::adopt(Runner::Job& job, uint64_t tag) {
  const auto found = requests_.find(tag);
  HVD_ASSERT(found != requests_.end());
  events_.agreed(found->second);
  job.requests.push_back(std::move(found->second));
  requests_.erase(found);
}

Batch Engine::make_batch(const Action& action) {
  const Signature& agreed = action.bound.front().signature;
  Batch batch{.sequence = action.sequence, .operation = agreed.operation};
  if (agreed.operation.kind == OperationKind::broadcast) {
    batch.operation.root = sets_.find_group(action.group)->rank_of(agreed.operation.root);
  } else if (agreed.operation.kind == OperationKind::message) {
    batch.operation.kind = OperationKind::broadcast;  // in the group of its two ranks
    batch.operation.root = agreed.operation.root == agreed.members.front() ? 0 : 1;
  }
  if (agreed.operation.device != DeviceKind::host) batch.loans = std::make_shared<Loans>();
  for (const Bound& bound : action.bound) {
    if (bound.mine) {
      Request& request = requests_.at(bound.tag);
      const auto& tensors = request.tensors;
      batch.tensors.insert(batch.tensors.end(), tensors.begin(), tensors.end());
      if (batch.loans && request.release) batch.loans->add(std::exchange(request.release, nullptr));
    } else {  // this rank has joined: the backend contributes neutral elements of these shapes
      for (const Shape& shape : bound.signature->shapes) batch.tensors.push_back({.shape = shape});
    }
  }
  return batch;
}

void Engine::add_group(GroupNumber number, const std::vector<int>& members) {
  GroupLevels group = wiring_.make_levels(members, backends_.host().uses_levels());
  backends_.for_each([&](Backend& backend) { backend.enter(group, members); });
  runner_.add_group(number, std::move(group));
}

// Local, since the ranks are connected.
void Engine::add_pair(const std::vector<int>& ranks) {
  if (runner_.has_pair(ranks)) return;
  GroupLevels group{.all = wiring_.make_group(ranks)};
  backends_.for_each([&](Backend& backend) { backend.enter_pair(group, ranks); });
  runner_.add_pair(ranks, std::move(group));
}

void Engine::add_set(Action& action) {
  const auto& members = action.members;
  if (std::binary_search(members.begin(), members.end(), wiring_.identity.rank))
    add_group(action.group, members);
  requests_.at(action.tag).completion->number = sets_.add(action.group, std::move(action.members));
  finish_waiting(action.tag, {});
}

// Removes the set at once. Its group is removed after the batches that run on it.
void Engine::remove_set(const Action& action) {
  Runner::Job job{.group = action.group, .closes_group = true};
  job.requests.reserve(1);
  adopt(runner_.enqueue(std::move(job)), action.tag);
  sets_.remove(action.group);
}

bool Engine::run_batches() {
  const Progress progress = runner_.advance();
  if (progress == Progress::launched) complete_launched();
  if (progress != Progress::done) return progress != Progress::waiting;
  const Runner::Job& done = runner_.finished();
  if (!done.closes_group) {
    if (!done.is_completed) control_.free_names(done.group, done.bound);
    if (!done.is_paced) control_.batch_ended(done.group);
  }
  Runner::Job job = runner_.take_finished();
  if (job.batch) job.batch->loans.reset();
  for (Request& request : job.requests) finish(request, {});
  return true;
}

// Completes the operations of the job that was launched, if callers can wait for the device: their
// handles are complete and their names free. Their memory is in use until the job is done. The Root
// takes the batch as ended, so that waiting threads need not wait for the device.
void Engine::complete_launched() {
  auto point = runner_.result_of_launched();
  if (!point) return;
  Runner::Job& job = runner_.launched();
  job.result = std::make_shared<DeviceResult>(std::move(point));
  job.is_completed = true;
  control_.free_names(job.group, job.bound);
  names_.remove(job.requests);
  if (!job.is_paced && runner_.launched_jobs() <= Runner::kQueuedJobs) {
    job.is_paced = true;
    control_.batch_ended(job.group);
  }
  for (Request& request : job.requests) {
    request.completion->result = job.result;
    request.is_launched = true;
    if (request.queued) request.queued();
    std::exchange(request.completion, nullptr)->handle.complete({});
  }
}

void Engine::finish(Request& request, Outcome outcome) {
  events_.done(request, outcome.code == Code::ok);
  if (outcome.code != Code::ok) self_report_.failed(outcome.text);
  if (request.release) request.release();
  const bool is_launched = std::exchange(request.is_launched, false);
  if (!is_launched) names_.remove(std::span(&request, 1));  // first: `ended` may submit it again
  if (request.ended) request.ended(outcome);
  if (!is_launched) std::exchange(request.completion, nullptr)->handle.complete(std::move(outcome));
}

void Engine::report_state() {
  const bool has_joined =
      std::ranges::any_of(requests_, [](const auto& entry) { return entry.second.joins(); });
  self_report_.tell({.rank = wiring_.identity.rank,
                     .size = wiring_.identity.size,
                     .generation = wiring_.generation,
                     .has_ended = ending_.has_value(),
                     .has_joined = has_joined},
                    requests_, runner_, sets_, channel_sets());
}

std::optional<TimePoint> Engine::deadline() const {
  const auto heartbeat = is_lost() ? std::nullopt : heartbeat_.deadline();
  const auto timer = state_ == State::closing ? earlier(closing_until_, heartbeat)
                                              : earlier(earlier(stall_watch_.deadline(), heartbeat),
                                                        launcher_watch_.deadline());
  const auto interval = is_leaving_devices_ && state_ == State::draining
                            ? std::optional<std::chrono::nanoseconds>(kDevicePoll)
                            : runner_.poll_interval();
  if (!interval) return timer;
  const TimePoint next_poll = clock_.now() + *interval;
  return timer ? std::min(*timer, next_poll) : next_poll;
}

// ---- the end
// ---------------------------------------------------------------------------------------

void Engine::end(Ending ending) {
  // Before anything of this rank ends, which others could take for the cause.
  if (ending.code != Code::shut_down) connections_.report_loss(culprit_of(ending.rank));
  inbox_.close(ending);
  if (ending.code != Code::shut_down) abandon_backends();
  if (silence_ && silence_->rank == ending.rank) ending.silence = silence_->text;
  told_(ending, busy() || silence_);
  ending_ = std::move(ending);
  take_submissions();  // requests from before the inbox closed fail with the ending
  end_requests(*ending_);
  if (ending_->code == Code::shut_down) {
    state_ = State::draining;
    return;
  }
  // Before the devices give up their work: their results may be in use already.
  runner_.for_each_job([&](Runner::Job& job) {
    if (job.result) job.result->lose({ending_->code, ending_->text, ending_->rank});
  });
  runner_.stop();
  runner_.for_each_job([&](Runner::Job& job) {
    for (Request& request : job.requests) {
      if (request.completion || request.is_launched) finish(request, outcome_of(*ending_, request));
    }
  });
  runner_.drop_all();
  end_device_work();
  begin_closing();
}

// The ranks end it together. Until then they owe each other a goodbye, so the loss of one is seen.
bool Engine::leave_devices() {
  if (!std::exchange(is_leaving_devices_, true)) end_device_work();
  bool all_ended = true;
  backends_.for_each([&](Backend& backend) { all_ended &= backend.has_ended_device_work(); });
  if (all_ended) begin_closing();
  return all_ended;
}

void Engine::abandon(const Error& error) {
  const bool blames_another = error.rank() != kNoRank && error.rank() != wiring_.identity.rank;
  if (blames_another) hear_of_end();
  if (error.rank() != kNoRank) connections_.forget(error.rank());
  if (state_ == State::closing && error.rank() == kNoRank) state_ = State::finished;
  if (state_ == State::closing || state_ == State::finished) return;
  const Error cause = blames_another ? told_cause().value_or(error) : error;
  if (state_ == State::running) {
    has_failed_ = !blames_another;
    control_.lose(culprit_of(cause.rank()), cause.what());
    act();  // calls end() with the text that all ranks get
  }
  if (state_ == State::running || state_ == State::draining)
    end(ending_of(cause, wiring_.identity.rank, ended_by(cause.rank())));
}

// A rank tells why it ends before it closes any connection. So before this rank blames one whose
// connection or process has ended, it reads everything that has arrived: the other one may have
// ended because of a third, or have given up this rank while it was stopped.
void Engine::hear_of_end() {
  for (bool moved = true; moved && (state_ == State::running || state_ == State::draining);) {
    try {
      moved = control_.pump();
      moved |= act();
      if (state_ == State::draining && wiring_.mesh) moved |= wiring_.mesh->pump();
    } catch (const Error& error) {
      if (error.rank() == kNoRank) return;
      connections_.forget(error.rank());  // its connection was read to the end; others go on
    }
  }
}

// The loss that others have told this rank, which counts before what it sees by itself. That it was
// given up counts most: then the others have ended because of it.
std::optional<Error> Engine::told_cause() {
  if (const auto& why = control_.why_given_up())
    return Error(Code::peer_lost, *why, wiring_.identity.rank);
  if (const auto report = connections_.take_report()) return error_of(*report);
  return std::nullopt;
}

void Engine::begin_closing() {
  closing_until_ =
      clock_.now() + (is_lost() ? Duration(kFlushAfterLoss) : Duration(knobs_.peer_timeout));
  state_ = State::closing;
  if (is_lost())
    connections_.give_up(culprit_of(ending_->rank));
  else
    connections_.say_goodbye();
}

bool Engine::close() {
  const bool moved = connections_.pump();
  if (!is_lost()) look_for_stopped();
  if (!connections_.parted(is_lost()) && clock_.now() < closing_until_) return moved;
  state_ = State::finished;
  return true;
}

// This rank has done its part and has nothing left to end but itself.
void Engine::look_for_stopped() {
  const auto silence = heartbeat_.check_stopped(control_.awaited());
  if (!silence) return;
  const Error error(Code::peer_lost, silence->text, silence->rank);
  ending_ = ending_of(error, wiring_.identity.rank, ended_by(silence->rank));
  ending_->silence = silence->text;
  connections_.report_loss(silence->rank);
  inbox_.close(*ending_);
  told_(*ending_, true);
  closing_until_ = clock_.now();
}

}  // namespace hvd
