// What keeps the memory of tensors alive while the engine uses it, and how it is let go of.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <pthread.h>

#include <mutex>
#include <vector>

#include "horovod/horovod.h"
#include "python/gil.h"

namespace hvd::python {

/// References that the engine has finished with, to be dropped by a thread that holds the GIL.
/// Never destroyed: the engine may release after the interpreter is gone.
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
  /// With the GIL.
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
  // A fork happens while the engine is not adding, so that the child finds the list free.
  static void lock() { instance().mutex_.lock(); }
  static void unlock() { instance().mutex_.unlock(); }

  std::mutex mutex_;
  std::vector<PyObject*> objects_;
};

inline Released& released() { return Released::instance(); }

/// The engine keeps `owner` alive until it is done with the request. Undone by dec_ref() when the
/// request is not taken.
inline void keep(hvd_request& request, nanobind::handle owner) {
  request.release = [](void* object) { released().add(static_cast<PyObject*>(object)); };
  request.owner = owner.ptr();
  owner.inc_ref();
}

}  // namespace hvd::python
