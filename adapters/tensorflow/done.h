// How an asynchronous kernel says that it is done, from any thread and long after it has returned.
#pragma once

#include <functional>

#include "adapters/tensorflow/c_api.h"

namespace hvd::tf {

using Done = std::function<void()>;

/// TensorFlow's pointer is to a std::function on its stack, which is gone when the kernel returns.
inline Done copy_of(DoneCallback* callback) { return *reinterpret_cast<const Done*>(callback); }

/// Whether TensorFlow's std::function is laid out as ours, so that copy_of is sound. Another layout
/// may be a crash here instead of an answer: the one that is known, c_api.cc has refused before.
inline bool done_can_be_copied() {
  bool called = false;
  Done probe = [&called] { called = true; };
  api().run_done(reinterpret_cast<DoneCallback*>(&probe));
  return called;
}

}  // namespace hvd::tf
