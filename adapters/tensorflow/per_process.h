// What there is one of in a process, also in one that was forked.
#pragma once

#include <pthread.h>

namespace hvd::tf {

/// The one T of this process. Never destroyed: a node may end at the very end of the process. A
/// forked child gets a new one, since it inherits neither the threads of the old one nor the locks
/// that these held.
template <class T>
T*& per_process() {
  static T* one = new T;
  static const int installed = pthread_atfork(nullptr, nullptr, [] { one = new T; });
  static_cast<void>(installed);
  return one;
}

}  // namespace hvd::tf
