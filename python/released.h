// Keeps the owners of tensors alive while the engine uses their memory, and drops them afterwards.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <pthread.h>

#include <mutex>
#include <vector>

#include "horovod/horovod.h"
#include "python/gil.h"

namespace hvd::python {

/// References that the engine no longer needs, to be dropped by a thread with the GIL. Any thread
/// may call add(). Never destroyed: the engine may call add() after the finalization of the
/// interpreter.
class Released {
 public:
  static Released& instance() {
    static Released& one = []() -> Released& {
      auto* const made = new Released;
      pthread_atfork(lock, unlock, unlock);
      return *made;
    }();
    return one;
  }

  void add(PyObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
  }
  /// Drops all references. Needs the GIL.
  void drop_all() {
    std::vector<PyObject*> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped.swap(objects_);
    }
    for (PyObject* object : dropped) drop(object);
  }

 private:
  Released() = default;
  // Holds the mutex during a fork, so that it is free in the child.
  static void lock() { instance().mutex_.lock(); }
  static void unlock() { instance().mutex_.unlock(); }

  std::mutex mutex_;
  std::vector<PyObject*> objects_;
};

inline Released& released() { return Released::instance(); }

/// Keeps `owner` alive until the engine releases the request. If the submission fails, the caller
/// must call owner.dec_ref().
inline void keep(hvd_request& request, nanobind::handle owner) {
  request.release = [](void* object) { released().add(static_cast<PyObject*>(object)); };
  request.owner = owner.ptr();
  owner.inc_ref();
}

}  // namespace hvd::python
