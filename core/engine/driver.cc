#include "core/engine/driver.h"

#include <sched.h>

#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/engine/patience.h"

namespace hvd {
namespace {

void pin_this_thread_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0)
    log(LogLevel::warning, "the runtime's thread cannot be pinned to core " + std::to_string(core));
}

}  // namespace

Driver::Driver(std::unique_ptr<Engine> engine, const DriverOptions& options)
    : engine_(std::move(engine)), options_(options), thread_([this] { main(); }) {}

Driver::~Driver() {
  shutdown();
  thread_.join();
}

Pushed Driver::submit(std::span<Request> requests) {
  const bool awaited = std::ranges::all_of(requests, &Request::has_handle);
  const Pushed pushed = engine_->submit(requests);
  if (pushed == Pushed::accepted) see_to_submissions(awaited);
  return pushed;
}

// There is something in the inbox. `awaited`: some thread will wait for it, and drive.
void Driver::see_to_submissions(bool awaited) {
  const Rest ringing_from = awaited ? Rest::sleep : Rest::nap;
  // Partner: fall_asleep() sets the flag and then looks into the inbox once more.
  if (asleep_.load(std::memory_order_seq_cst) >= ringing_from) {
    engine_->ring();
  } else if (!awaited) {
    // A thread that waited may have just gone, and left the engine thread to its nap.
    const std::lock_guard lock(mutex_);
    if (holder_ == Holder::nobody) rouse_engine_thread();
  }
}

void Driver::shutdown() {
  engine_->submit_shutdown();
  see_to_submissions(true);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
}

// ---- the engine thread
// -----------------------------------------------------------------------------

void Driver::main() {
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

// Returns when all is done, a waiting thread wants the token, or it is time to rest.
Driver::Rest Driver::drive_as_engine_thread() {
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

// There was nothing to do. None when there is, after all.
Driver::Rest Driver::choose_rest(bool was_needed) {
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

// Without the token: a waiting thread may drive meanwhile.
void Driver::rest(Rest how, std::unique_lock<std::mutex>& lock) {
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

// A waiting thread drives, or is about to. Usually that is soon over, and then it does not say so.
void Driver::watch_the_other(std::unique_lock<std::mutex>& lock) {
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

// ---- a thread that waits
// ---------------------------------------------------------------------------

void Driver::wait(const Handle& handle) {
  if (handle.done()) return;
  if (!take_token(handle)) return handle.wait();
  wake_up();
  drive_until(handle);
  give_token_back();
}

// True with the token; false when another waiting thread drives, or the operation is done already.
bool Driver::take_token(const Handle& handle) {
  std::unique_lock lock(mutex_);
  if (holder_ == Holder::engine_thread) ask_for_token(handle, lock);
  if (holder_ == Holder::nobody && !handle.done() && !finished_) {
    holder_ = Holder::waiting_thread;
    ++drives_;
    return true;
  }
  rouse_engine_thread();  // it may be holding back for this thread
  return false;
}

void Driver::ask_for_token(const Handle& handle, std::unique_lock<std::mutex>& lock) {
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

void Driver::drive_until(const Handle& handle) {
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

// With nothing left to do, an engine thread that naps will look by itself; nobody is told.
void Driver::give_token_back() {
  const std::lock_guard lock(mutex_);  // what is submitted later finds that nobody holds the token
  const bool work_left =
      engine_->busy() || engine_->finished() || engine_->owes_peers() || error_.has_value();
  holder_ = Holder::nobody;
  if (work_left || rest_ == Rest::sleep || rest_ == Rest::stand_by) rouse_engine_thread();
}

// Under mutex_. It drives, or takes a nap after it has seen that there is nothing to do.
void Driver::rouse_engine_thread() {
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

bool Driver::turn() {
  const bool moved = guarded([this] {
    if (error_) engine_->abandon(*std::exchange(error_, std::nullopt));
    return engine_->turn();
  });
  moved_ |= moved;
  return moved;
}

// The boundary: what is thrown below ends the generation in the next turn.
template <class Body>
bool Driver::guarded(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    error_ = error;
  } catch (const std::exception& error) {
    error_ = Error(Code::internal, error.what());
  }
  return true;
}

// Announces that this rank must be rung from now on, by its peers and by those that submit (while
// it only naps, by those of them that will not wait); then looks once more, so that nothing that
// came before is missed. False when there was something.
bool Driver::fall_asleep(Rest how) {
  asleep_.store(how, std::memory_order_seq_cst);
  peers_ring_ = true;
  const bool announced = guarded([this] { return engine_->set_asleep(true), true; });
  return announced && !error_ && !turn();
}

void Driver::wake_up() {
  if (asleep_.load(std::memory_order_relaxed) != Rest::none)
    asleep_.store(Rest::none, std::memory_order_seq_cst);
  if (std::exchange(peers_ring_, false)) engine_->set_asleep(false);
}

}  // namespace hvd
