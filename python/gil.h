// Releases and acquires the GIL in a process whose interpreter may finalize meanwhile.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <type_traits>

namespace hvd::python {

/// Blocks its thread forever if the thread is ended in the scope of this object: if the stack is
/// unwound, and not by an exception. A destructor notices that with every compiler. Only libstdc++
/// can catch it.
class BlockedInsteadOfEnded {
 public:
  BlockedInsteadOfEnded() = default;
  BlockedInsteadOfEnded(const BlockedInsteadOfEnded&) = delete;
  BlockedInsteadOfEnded& operator=(const BlockedInsteadOfEnded&) = delete;
  ~BlockedInsteadOfEnded() {
    if (has_returned_ || std::uncaught_exceptions() > exceptions_before_) return;
    for (;;) pause();
  }

  void has_returned() { has_returned_ = true; }

 private:
  bool has_returned_ = false;
  const int exceptions_before_ = std::uncaught_exceptions();
};

/// Runs `call`, a call into Python that acquires the GIL or may release it temporarily.
///
/// While the interpreter finalizes, Python before 3.14 ends every other thread that acquires the
/// GIL by pthread_exit(). That unwinds the stack and calls std::terminate() at a noexcept function,
/// such as those of nanobind and the C interface. So this function blocks such a thread forever, as
/// Python 3.14 does itself. No object with a destructor may exist between `call` and the function
/// of Python that it calls, since the destructor would run without the GIL.
template <class Call>
auto stopping_at_the_end(Call call) {
  BlockedInsteadOfEnded guard;
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    guard.has_returned();
  } else {
    const auto result = call();
    guard.has_returned();
    return result;
  }
}

/// Whether the process is exiting, and the thread that runs the exit. Any thread may call any
/// function.
class Exit {
 public:
  /// Called by the thread that runs the exit handlers.
  static void begin() {
    thread().store(std::this_thread::get_id(), std::memory_order_relaxed);
    has_begun().store(true, std::memory_order_release);  // pairs with let_it_go_first()
  }

  /// Delays other threads during the exit. The end of the job wakes the threads that wait for
  /// operations. If they returned to Python at once, they could enter a framework when Python ends
  /// them, whose frames call std::terminate() when they are unwound. The delay is limited, because
  /// an exit handler may wait for such a thread.
  static void let_it_go_first() {
    if (!has_begun().load(std::memory_order_acquire)) return;
    if (thread().load(std::memory_order_relaxed) != std::this_thread::get_id())
      std::this_thread::sleep_for(kHeadStart);
  }

 private:
  static constexpr std::chrono::seconds kHeadStart{1};

  static std::atomic<bool>& has_begun() {
    static std::atomic<bool> begun{false};
    return begun;
  }
  static std::atomic<std::thread::id>& thread() {
    static std::atomic<std::thread::id> id{};
    return id;
  }
};

/// Releases the GIL. The owner must call take_back() on every path. A destructor cannot do it,
/// since it could not block the thread.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

  void take_back() {
    Exit::let_it_go_first();
    stopping_at_the_end([this] { PyEval_RestoreThread(state_); });
  }
  void give_away() { state_ = PyEval_SaveThread(); }

 private:
  PyThreadState* state_;
};

/// Acquires the GIL on any thread, until its end.
class Locked {
 public:
  Locked() : state_(stopping_at_the_end([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Runs `call`, which must not throw, without the GIL.
template <class Call>
auto without_gil(Call call) {
  Unlocked unlocked;
  const auto result = call();
  unlocked.take_back();
  return result;
}

/// Drops a reference, which may run Python code. Needs the GIL.
inline void drop(PyObject* object) {
  stopping_at_the_end([=] { Py_DECREF(object); });
}

}  // namespace hvd::python
