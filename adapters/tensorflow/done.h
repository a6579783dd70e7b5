// The callback by which an asynchronous kernel reports its end, on any thread and possibly long
// after the kernel has returned.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "adapters/tensorflow/c_api.h"

namespace hvd::tf {

/// A std::function<void()> of libstdc++, which TensorFlow's packages use. The layout is written
/// down here because this library may be compiled with another standard library. Owned by one
/// thread at a time; empty once moved from.
class Done {
 public:
  /// Copies TensorFlow's std::function. It is on TensorFlow's stack and is destroyed when the
  /// kernel returns.
  explicit Done(const DoneCallback* function) {
    Layout theirs;
    std::memcpy(&theirs, function, sizeof(theirs));
    if (theirs.manage == nullptr) return;
    theirs.manage(&layout_.functor, function, kClone);
    layout_.manage = theirs.manage;
    layout_.invoke = theirs.invoke;
  }
  /// A function that sets `called`, which must outlive it and its copies.
  explicit Done(bool& called) : layout_{{}, manage_flag, set_flag} {
    const bool* const address = &called;
    std::memcpy(layout_.functor.bytes, &address, sizeof(address));
  }
  Done(Done&& other) noexcept : layout_(std::exchange(other.layout_, {})) {}
  Done& operator=(Done&&) = delete;
  ~Done() {
    if (layout_.manage != nullptr) layout_.manage(&layout_.functor, &layout_.functor, kDestroy);
  }

  /// Must not be empty.
  void operator()() const { layout_.invoke(&layout_.functor); }
  /// For functions of TensorFlow that take a std::function.
  DoneCallback* address() { return reinterpret_cast<DoneCallback*>(&layout_); }

 private:
  /// A pointer to a functor on the heap, or the functor itself. Then it is trivially copyable, so
  /// the bytes can be moved.
  struct alignas(void*) Functor {
    std::byte bytes[2 * sizeof(void*)];
  };
  /// Operations of `manage` on functors. The other two are about run-time type information.
  enum Operation : unsigned { kClone = 2, kDestroy = 3 };
  struct Layout {
    Functor functor;
    bool (*manage)(void* functor, const void* source, Operation);  ///< nullptr: empty
    void (*invoke)(const void* functor);
  };

  static bool manage_flag(void* functor, const void* source, Operation operation) {
    if (operation == kClone) std::memcpy(functor, source, sizeof(Functor));
    return false;
  }
  static void set_flag(const void* functor) {
    bool* called = nullptr;
    std::memcpy(&called, functor, sizeof(called));
    *called = true;
  }

  Layout layout_{};
};

static_assert(sizeof(Done) == 4 * sizeof(void*) && std::is_standard_layout_v<Done>);

/// Returns whether TensorFlow calls a Done as its own std::function. Another layout may crash here;
/// c_api.cc rejects the known one (libc++) before.
inline bool done_fits() {
  bool called = false;
  Done probe(called);
  api().run_done(probe.address());
  return called;
}

}  // namespace hvd::tf
