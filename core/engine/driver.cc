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

bool Driver::submit(Request&& request) {
  if (!engine_->submit(std::move(request))) return false;
  // Partner: fall_asleep() sets the flag and then looks into the inbox once more.
  if (asleep_.load(std::memory_order_seq_cst)) engine_->ring();
  return true;
}

void Driver::shutdown() {
  Request request;
  request.kind = Request::Kind::shutdown;
  submit(std::move(request));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
}

// ---- the engine thread
// -----------------------------------------------------------------------------

void Driver::main() {
  if (options_.core) pin_this_thread_to(*options_.core);
  std::unique_lock lock(mutex_);
  while (!finished_) {
    changed_.wait(
        lock, [this] { return finished_ || (holder_ == Holder::nobody && wanted_.load() == 0); });
    if (finished_) return;
    holder_ = Holder::engine_thread;
    lock.unlock();
    wake_up();
    guarded([this] { return engine_->take_events(), true; });
    const bool asleep = drive_as_engine_thread();
    const bool finished = engine_->finished();
    const auto deadline = engine_->deadline();
    lock.lock();
    finished_ = finished;
    holder_ = Holder::nobody;
    changed_.notify_all();
    if (finished || !asleep) continue;
    lock.unlock();
    engine_->park(deadline);  // without the token: a waiting thread may drive meanwhile
    lock.lock();
  }
}

// Returns when all is done, a waiting thread wants the token, or it is time to park. True only for
// the last: then peers and submitters know that they must ring.
bool Driver::drive_as_engine_thread() {
  Patience patience(options_.spare_cores);
  while (!engine_->finished() && wanted_.load(std::memory_order_relaxed) == 0) {
    if (turn()) {
      patience.renew();
    } else if (!engine_->busy() || !patience.spend()) {
      if (fall_asleep()) return true;
      patience.renew();
    }
  }
  return false;
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
  Patience patience(options_.spare_cores);
  std::unique_lock lock(mutex_);
  wanted_.fetch_add(1);
  while (holder_ == Holder::engine_thread && !handle.done() && !finished_) {
    lock.unlock();
    const bool patient = patience.spend();
    lock.lock();
    if (!patient && holder_ == Holder::engine_thread && !finished_) changed_.wait(lock);
  }
  wanted_.fetch_sub(1);
  if (holder_ == Holder::nobody && !handle.done() && !finished_) {
    holder_ = Holder::waiting_thread;
    return true;
  }
  changed_.notify_all();  // the engine thread may be holding back for this thread
  return false;
}

void Driver::drive_until(const Handle& handle) {
  Patience patience(options_.spare_cores);
  while (!handle.done()) {
    if (turn()) {
      patience.renew();
    } else if (!patience.spend()) {
      if (fall_asleep()) guarded([this] { return engine_->wait(), true; });
      wake_up();
      patience.renew();
    }
  }
}

void Driver::give_token_back() {
  const bool quiet = fall_asleep();
  const bool work_left =
      !quiet || engine_->busy() || engine_->finished() || engine_->deadline().has_value();
  {
    const std::lock_guard lock(mutex_);
    holder_ = Holder::nobody;
    changed_.notify_all();
  }
  if (work_left) engine_->ring();  // the parked engine thread takes over
}

// ---- with the token
// --------------------------------------------------------------------------------

bool Driver::turn() {
  return guarded([this] {
    if (error_) engine_->abandon(*std::exchange(error_, std::nullopt));
    return engine_->turn();
  });
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

// Announces that this rank must be rung from now on, then looks once more, so that nothing that
// came before the announcement is missed. False when there was something.
bool Driver::fall_asleep() {
  asleep_.store(true, std::memory_order_seq_cst);
  const bool announced = guarded([this] { return engine_->set_asleep(true), true; });
  return announced && !error_ && !turn();
}

void Driver::wake_up() {
  engine_->set_asleep(false);
  asleep_.store(false, std::memory_order_seq_cst);
}

}  // namespace hvd
