// Collects the gradients that the hooks of parameters report during a backward pass, until Python
// takes them. Owned by one optimizer. Called by autograd with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "python/gil.h"
#include "python/tensor_reader.h"

namespace hvd::python {

/// Counts the remaining backward passes per parameter and collects complete gradients. Calls Python
/// only for the first gradient of a pass and when there is enough to send, because a hook in Python
/// is several times slower.
class GradientNotes {
 public:
  /// Callbacks. They must not hold a reference to their owner, which owns these notes.
  struct Listeners {
    nb::callable begin;   ///< called before the first gradient since begin_pass(), with its index
    nb::callable enough;  ///< called when a bundle or all parameters are complete
    /// Called with the index of a parameter that needs no more passes or is not expected. If it
    /// returns, a parameter that was not expected is expected from now on.
    nb::callable unexpected;
    /// Called with a gradient on a device, on the thread whose current stream completes it, if the
    /// stream may be a new one since the last forget_streams().
    nb::callable on_stream;
  };

  GradientNotes(const nb::capsule& readers, Listeners listeners, int64_t enough_bytes)
      : readers_(readers),
        reader_(Reader::in(readers)),
        listeners_(std::move(listeners)),
        enough_bytes_(enough_bytes) {}

  /// Adds an expected parameter with gradients of `bytes`, complete after `passes`. Returns its
  /// index.
  size_t add(int64_t bytes, int passes) {
    bytes_.push_back(bytes);
    left_.push_back(passes);
    is_expected_.push_back(true);
    ++expected_count_;
    return left_.size() - 1;
  }

  /// Sets which parameters are expected, one flag per parameter.
  void expect(const std::vector<bool>& flags) {
    if (flags.size() != left_.size())
      nb::raise("expected %zu flags, one per hook, got %zu", left_.size(), flags.size());
    is_expected_ = flags;
    expected_count_ = static_cast<size_t>(std::count(flags.begin(), flags.end(), true));
  }

  /// Returns the index of the parameter with the latest gradient; -1 if there is none.
  int64_t last() const { return last_; }

  /// Sets the passes that every parameter needs from now on. Keeps collected gradients.
  void restart(int passes) {
    std::fill(left_.begin(), left_.end(), passes);
    complete_count_ = 0;
    is_begun_ = false;
  }

  void begin_pass() { is_begun_ = false; }

  /// Stops collecting, because the owner is destroyed.
  void stop() {
    is_stopped_ = true;
    take();
  }

  /// Returns and clears indices, gradients and their versions, and returns whether the memory of
  /// all gradients can be sent in place (it may hold negated values, which TensorList detects).
  nb::tuple take() {
    const bool are_plain = std::exchange(are_plain_, true);
    noted_bytes_ = 0;
    return nb::make_tuple(std::exchange(indices_, nb::list()),
                          std::exchange(gradients_, nb::list()),
                          std::exchange(versions_, nb::list()), are_plain);
  }

  /// Every stream is a new one from now on.
  void forget_streams() { streams_.clear(); }

  bool has_noted() const { return nb::len(indices_) > 0; }

  void on_gradient(size_t index, nb::handle parameter) {
    if (is_stopped_) return;
    if (!is_begun_) {
      tell(listeners_.begin, nb::int_(index).ptr());
      is_begun_ = true;  // not earlier, since the callback may call restart()
    }
    if (!is_expected_[index]) {
      tell(listeners_.unexpected, nb::int_(index).ptr());
      is_expected_[index] = true;
      ++expected_count_;
    }
    if (left_[index] == 0) return tell(listeners_.unexpected, nb::int_(index).ptr());
    last_ = static_cast<int64_t>(index);
    if (--left_[index] > 0) return;
    note(index, nb::getattr(parameter, grad_name_));
    ++complete_count_;
    if (noted_bytes_ >= enough_bytes_ || complete_count_ == expected_count_)
      tell(listeners_.enough);
  }

 private:
  /// Calls `listener` with one argument or none.
  static void tell(const nb::callable& listener, PyObject* argument = nullptr) {
    PyObject* const answer = stopping_at_the_end(
        [&] { return PyObject_CallFunctionObjArgs(listener.ptr(), argument, nullptr); });
    if (answer == nullptr) nb::raise_python_error();
    Py_DECREF(answer);
  }

  void note(size_t index, nb::object gradient) {
    hvd_tensor read{};
    const bool is_plain = reader_.read_layout(gradient.ptr(), read);
    are_plain_ = are_plain_ && is_plain;
    note_stream(gradient, is_plain ? &read : nullptr);
    noted_bytes_ += bytes_[index];
    indices_.append(index);
    versions_.append(nb::getattr(gradient, version_name_, nb::none()));
    gradients_.append(std::move(gradient));
  }

  /// `read`: nullptr if only Python can read the gradient.
  void note_stream(nb::handle gradient, const hvd_tensor* read) {
    if (read != nullptr) {
      if (read->device.type == HVD_HOST) return;
      if (std::find(streams_.begin(), streams_.end(), read->stream) != streams_.end()) return;
    } else if (nb::cast<bool>(nb::getattr(gradient, "is_cpu", nb::bool_(true)))) {
      return;
    }
    tell(listeners_.on_stream, gradient.ptr());
    if (read != nullptr) streams_.push_back(read->stream);
  }

  /// Python finds attributes by interned names faster.
  static nb::object interned(const char* name) {
    return nb::steal(PyUnicode_InternFromString(name));
  }

  const nb::object grad_name_ = interned("grad");
  const nb::object version_name_ = interned("_version");
  nb::capsule readers_;
  const Reader& reader_;
  Listeners listeners_;
  const int64_t enough_bytes_;
  std::vector<int64_t> bytes_;     // by index
  std::vector<int> left_;          // by index
  std::vector<bool> is_expected_;  // by index
  size_t expected_count_ = 0;
  size_t complete_count_ = 0;
  int64_t last_ = -1;
  int64_t noted_bytes_ = 0;
  nb::list indices_, gradients_, versions_;
  std::vector<void*> streams_;  // that on_stream was told of; few
  bool are_plain_ = true;
  bool is_begun_ = false;
  bool is_stopped_ = false;
};

inline void make_notes(GradientNotes* made, const nb::capsule& readers, nb::callable begin,
                       nb::callable enough, nb::callable unexpected, nb::callable on_stream,
                       int64_t enough_bytes) {
  new (made) GradientNotes(
      readers, {std::move(begin), std::move(enough), std::move(unexpected), std::move(on_stream)},
      enough_bytes);
}

/// Returns the hook that autograd calls with a parameter after it has accumulated its gradient. The
/// hook keeps the notes alive.
inline nb::object make_hook(nb::object self, int64_t bytes, int passes) {
  auto& notes = nb::cast<GradientNotes&>(self);
  const size_t index = notes.add(bytes, passes);
  return nb::cpp_function([self = std::move(self), &notes, index](nb::handle parameter) {
    notes.on_gradient(index, parameter);
  });
}

}  // namespace hvd::python
