// Singletons per process, also in forked children.
#pragma once

#include <pthread.h>

namespace hvd::adapter {

/// Returns the T of this process. Never destroyed: an operation may end during the exit of the
/// process. A forked child gets a new T, since it has neither the threads of the old one nor the
/// locks that they held.
template <class T>
T*& per_process() {
  static T* one = new T;
  static const int installed = pthread_atfork(nullptr, nullptr, [] { one = new T; });
  static_cast<void>(installed);
  return one;
}

}  // namespace hvd::adapter
