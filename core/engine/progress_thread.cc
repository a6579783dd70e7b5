#include "core/engine/progress_thread.h"

#include <sched.h>

#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/base/start_thread.h"
#include "core/transport/patience.h"

namespace hvd {
namespace {

void pin_this_thread_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0)
    log(LogLevel::warning, "cannot pin the progress thread to core " + std::to_string(core));
}

}  // namespace

ProgressThread::ProgressThread(std::unique_ptr<Engine> engine, const ProgressOptions& options)
    : engine_(std::move(engine)), options_(options), thread_(start_thread([this] { main(); })) {}

ProgressThread::~ProgressThread() {
  shutdown();
  thread_.join();
}

std::optional<Refusal> ProgressThread::submit(std::span<Request> requests) {
  const bool awaited = std::ranges::all_of(requests, &Request::has_handle);
  const std::optional<Refusal> refusal = engine_->submit(requests);
  if (!refusal) see_to_submissions(awaited);
  return refusal;
}

// Wakes the engine after a submission if necessary. `awaited`: a thread will wait for it and drive.
void ProgressThread::see_to_submissions(bool awaited) {
  const Rest ringing_from = awaited ? Rest::sleep : Rest::nap;
  // Pairs with fall_asleep(), which sets the flag and then checks the inbox again.
  if (asleep_.load(std::memory_order_seq_cst) >= ringing_from) {
    engine_->ring();
  } else if (!awaited) {
    // A waiting thread may have just stopped driving and left the engine thread napping.
    const std::lock_guard lock(mutex_);
    if (holder_ == Holder::nobody) rouse_engine_thread();
  }
}

void ProgressThread::shutdown() {
  engine_->submit_shutdown();
  see_to_submissions(true);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
}

// ---- the engine thread
// -----------------------------------------------------------------------------

void ProgressThread::main() {
  if (options_.core) pin_this_thread_to(*options_.core);
  std::unique_lock lock(mutex_);
  while (!finished_) {
    if (holder_ == Holder::waiting_thread || wanted_.load() > 0) {
      watch_the_other(lock);
      continue;
    }
    holder_ = Holder::engine_thread;
    lock.unlock();
    const Rest how = drive_as_engine_thread();
    const bool finished = engine_->finished();
    lock.lock();
    finished_ = finished;
    holder_ = Holder::nobody;
    changed_.notify_all();
    if (!finished && how != Rest::none) rest(how, lock);
  }
}

// Drives until the engine is finished, a waiting thread wants the token, or it is time to rest.
ProgressThread::Rest ProgressThread::drive_as_engine_thread() {
  wake_up();
  guarded([this] { return engine_->take_events(), true; });
  Patience patience(options_.spare_cores);
  bool was_needed = false;
  while (!engine_->finished() && wanted_.load(std::memory_order_relaxed) == 0) {
    if (turn()) {
      was_needed = true;
      patience.renew();
    } else if (!engine_->busy() || !patience.spend()) {
      const Rest how = choose_rest(was_needed);
      if (how != Rest::none) return how;
      was_needed = true;
      patience.renew();
    }
  }
  return Rest::none;
}

// Called if there is nothing to do. Returns Rest::none if a last check finds work.
ProgressThread::Rest ProgressThread::choose_rest(bool was_needed) {
  if (was_needed) {
    naps_.was_needed();
  } else {
    naps_.was_not_needed(std::exchange(moved_, false));
  }
  const Rest how = naps_.are_over() ? Rest::sleep : Rest::nap;
  if (fall_asleep(how)) return how;
  wake_up();
  return Rest::none;
}

// Rests without the token, so a waiting thread can drive.
void ProgressThread::rest(Rest how, std::unique_lock<std::mutex>& lock) {
  rest_ = how;
  auto until = engine_->deadline();
  lock.unlock();
  if (how == Rest::nap) {
    const TimePoint end = std::chrono::steady_clock::now() + naps_.length();
    until = until ? std::min(*until, end) : end;
  }
  engine_->park(until);
  lock.lock();
  rest_ = Rest::none;
}

// Called while a waiting thread drives or is about to. That is usually short, and the thread does
// not notify the engine thread when it stops.
void ProgressThread::watch_the_other(std::unique_lock<std::mutex>& lock) {
  watched_ = drives_ == watched_drive_ ? watched_ + 1 : 0;
  watched_drive_ = drives_;
  naps_.was_not_needed(true);
  if (watched_ > Naps::kForNothing) {
    rest_ = Rest::stand_by;
    unwatched_.wait(lock);
  } else {
    rest_ = Rest::watch;
    unwatched_.wait_for(lock, naps_.length());
  }
  rest_ = Rest::none;
}

// ---- waiting threads
// ---------------------------------------------------------------------------

void ProgressThread::wait(const Handle& handle) {
  if (handle.done()) return;
  if (!take_token(handle)) return handle.wait();
  wake_up();
  drive_until(handle);
  give_token_back();
}

bool ProgressThread::poll(const Handle& handle, std::chrono::microseconds patience) {
  if (handle.done()) return true;
  if (!take_token(handle)) return handle.wait_for(patience);
  wake_up();
  Patience left(options_.spare_cores, patience);
  while (!handle.done()) {
    if (turn()) {
      left.renew();
    } else if (!left.spend()) {
      break;
    }
  }
  give_token_back();
  return handle.done();
}

// Returns true with the token; false if another waiting thread drives or the operation is done.
bool ProgressThread::take_token(const Handle& handle) {
  std::unique_lock lock(mutex_);
  if (holder_ == Holder::engine_thread) ask_for_token(handle, lock);
  if (holder_ == Holder::nobody && !handle.done() && !finished_) {
    holder_ = Holder::waiting_thread;
    ++drives_;
    return true;
  }
  rouse_engine_thread();  // it may have yielded the token to this thread
  return false;
}

void ProgressThread::ask_for_token(const Handle& handle, std::unique_lock<std::mutex>& lock) {
  Patience patience(options_.spare_cores);
  wanted_.fetch_add(1);
  while (holder_ == Holder::engine_thread && !handle.done() && !finished_) {
    lock.unlock();
    const bool patient = patience.spend();
    lock.lock();
    if (!patient && holder_ == Holder::engine_thread && !finished_) changed_.wait(lock);
  }
  wanted_.fetch_sub(1);
}

void ProgressThread::drive_until(const Handle& handle) {
  Patience patience(options_.spare_cores);
  while (!handle.done()) {
    if (turn()) {
      patience.renew();
    } else if (!patience.spend()) {
      if (fall_asleep(Rest::sleep)) guarded([this] { return engine_->wait(), true; });
      wake_up();
      patience.renew();
    }
  }
}

// If there is nothing left to do, a napping engine thread is not woken; it polls by itself.
void ProgressThread::give_token_back() {
  const std::lock_guard lock(mutex_);  // later submissions see that no thread holds the token
  const bool work_left =
      engine_->busy() || engine_->finished() || engine_->owes_peers() || error_.has_value();
  holder_ = Holder::nobody;
  if (work_left || rest_ == Rest::sleep || rest_ == Rest::stand_by) rouse_engine_thread();
}

// Wakes the engine thread, which drives, or naps if there is nothing to do. Needs mutex_.
void ProgressThread::rouse_engine_thread() {
  switch (rest_) {
    case Rest::none:
      return;
    case Rest::nap:
    case Rest::sleep:
      return engine_->ring();
    case Rest::watch:
    case Rest::stand_by:
      return unwatched_.notify_one();
  }
}

// ---- with the token
// --------------------------------------------------------------------------------

bool ProgressThread::turn() {
  const bool moved = guarded([this] {
    if (error_) engine_->abandon(*std::exchange(error_, std::nullopt));
    return engine_->turn();
  });
  moved_ |= moved;
  return moved;
}

// Catches exceptions. They end the generation in the next turn.
template <class Body>
bool ProgressThread::guarded(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    error_ = error;
  } catch (const std::exception& error) {
    error_ = Error(Code::internal, error.what());
  }
  return true;
}

// Announces that peers and submitting threads must wake this rank (during a nap, only threads that
// will not wait). Then checks once more, so that no earlier event is missed. Returns false if there
// was an event.
bool ProgressThread::fall_asleep(Rest how) {
  asleep_.store(how, std::memory_order_seq_cst);
  peers_ring_ = true;
  const bool announced = guarded([this] { return engine_->set_asleep(true), true; });
  return announced && !error_ && !turn();
}

void ProgressThread::wake_up() {
  if (asleep_.load(std::memory_order_relaxed) != Rest::none)
    asleep_.store(Rest::none, std::memory_order_seq_cst);
  if (std::exchange(peers_ring_, false)) engine_->set_asleep(false);
}

}  // namespace hvd
