// Giving away Python's lock, the GIL, and taking it back, in a process that may end meanwhile.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace hvd::python {

/// Runs `call`, a call into Python that takes the GIL or may give it away for a moment.
///
/// Once the interpreter ends, Python before 3.14 ends every other thread where it asks for the GIL,
/// by pthread_exit(). That unwinds the stack, and where it meets a function that is noexcept, as
/// those of nanobind and of the C interface are, it ends the process by std::terminate(). So such a
/// thread stops here for ever, as it does by itself from 3.14 on. Nothing between `call` and the
/// function of Python that it calls may have a destructor, for it would run without the GIL.
template <class Call>
auto stopping_at_the_end(Call call) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// Whether the process exits, and by which thread. Any thread may call any function.
class Exit {
 public:
  /// Called by the thread that runs what is registered for the end.
  static void begin() {
    thread().store(std::this_thread::get_id(), std::memory_order_relaxed);
    has_begun().store(true, std::memory_order_release);  // partner: let_it_go_first()
  }

  /// The end of the job wakes the threads that wait for its operations. They let the exiting thread
  /// go first: back in Python they would go on to frameworks whose frames Python then unwinds, and
  /// those end the process by std::terminate() too. Only if something at the end of the script
  /// waits for such a thread does it come back.
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

/// The GIL given away by this thread. It has no destructor, which could not stop the thread: the
/// owner calls take_back() whatever happens.
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

/// Runs `call`, which must not throw, without the GIL.
template <class Call>
auto without_gil(Call call) {
  Unlocked unlocked;
  const auto result = call();
  unlocked.take_back();
  return result;
}

/// Lets go of a reference, which may run code of Python. With the GIL.
inline void drop(PyObject* object) {
  stopping_at_the_end([=] { Py_DECREF(object); });
}

}  // namespace hvd::python
