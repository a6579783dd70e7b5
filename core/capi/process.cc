#include "core/capi/process.h"

#include <pthread.h>

#include <new>
#include <utility>

#include "core/base/log.h"

namespace hvd {
namespace {

// Holds the locks during a fork, so that they are free in the child.
void before_fork() {
  process().mutex.lock();
  process().handles.mutex().lock();
  lock_log();
}
void after_fork() {
  unlock_log();
  process().handles.mutex().unlock();
  process().mutex.unlock();
}
// The child has none of the other threads: neither one that was changing the Context nor waiters.
void after_fork_in_child() {
  process().change = Process::Change::none;
  new (&process().changed) std::condition_variable;
  if (process().context) process().context->is_now_inherited();
  // Its connection is the parent's. It is leaked, since another thread may have been using it.
  if (process().membership)
    static_cast<void>(new std::shared_ptr<Membership>(std::move(process().membership)));
  ++process().forks;
  after_fork();
}

}  // namespace

Process& process() {
  static Process& instance = [&]() -> Process& {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    return *new Process;
  }();
  return instance;
}

Changing::Changing(Change change) {
  std::unique_lock lock(process().mutex);
  process().changed.wait(lock, [] { return process().change == Change::none; });
  process().change = change;
}

std::unique_ptr<Changing> Changing::unless_starting() {
  std::unique_lock lock(process().mutex);
  process().changed.wait(lock, [] { return process().change != Change::ending; });
  if (process().change == Change::starting) return nullptr;
  process().change = Change::ending;
  return std::unique_ptr<Changing>(new Changing);
}

Changing::~Changing() {
  const std::lock_guard lock(process().mutex);
  process().change = Change::none;
  process().changed.notify_all();
}

std::shared_ptr<Context> current() {
  const std::lock_guard lock(process().mutex);
  const auto& context = process().context;
  return context && context->belongs_to_this_process() ? context : nullptr;
}

std::shared_ptr<Context> running() {
  auto context = current();
  if (!context) {
    fail(Code::not_initialized, "Horovod is not initialised on this process: call hvd.init()");
  }
  return context;
}

void replace(std::shared_ptr<Context> next) {
  std::shared_ptr<Context> former;  // destroyed outside the lock
  const std::lock_guard lock(process().mutex);
  former = std::exchange(process().context, std::move(next));
  if (former && !former->belongs_to_this_process()) {
    // A forked child has no threads to join, so the copy of its parent's Context is leaked.
    static_cast<void>(new std::shared_ptr<Context>(std::move(former)));
  }
}

std::shared_ptr<Membership> membership() {
  const std::lock_guard lock(process().mutex);
  auto& known = process().membership;
  if (known) return known;
  const Environment environment = process_environment();
  if (worker_of(environment)) known = std::make_shared<Membership>(environment);
  return known;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

}  // namespace hvd
