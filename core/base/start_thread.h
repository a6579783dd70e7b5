// Starts the threads of the runtime. They take no signal that is sent to the process: one of the
// application's threads takes it, so that its handler runs there and interrupts what that waits
// for.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace hvd {

/// Blocks all signals of this thread, and of threads that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// Lets this thread take the signals of its own faults, which are never meant for another one: if
/// they are blocked, no handler prints where it was.
inline void take_own_faults() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    sigaddset(&faults, number);
  ::pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

/// Starts a thread that runs `body()`. Throws std::system_error if there can be none.
template <class Body>
std::thread start_thread(Body body) {
  const SignalsBlocked blocked;
  return std::thread([body = std::move(body)]() mutable {
    take_own_faults();
    body();
  });
}

}  // namespace hvd
