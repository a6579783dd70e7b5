// What the hooks of parameters tell in a backward pass, until Python takes it. Owned by one
// optimizer, and called by autograd, with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "python/gil.h"
#include "python/tensor_reader.h"

namespace hvd::python {

/// Counts the backward passes that each parameter still needs, and notes the gradients that are
/// complete. Python hears of the first gradient of a pass, and when there is enough to be sent:
/// a hook in Python took 6 us a parameter, this takes 1.5.
class GradientNotes {
 public:
  /// What it calls. They must not keep their owner alive, which has these notes.
  struct Listeners {
    nb::callable begin;      ///< before the first gradient since begin_pass()
    nb::callable enough;     ///< a bundle is there, or all parameters are complete
    nb::callable too_often;  ///< with the index of a parameter that needs no more passes
  };

  GradientNotes(const nb::capsule& readers, Listeners listeners, int64_t enough_bytes)
      : readers_(readers),
        reader_(Reader::in(readers)),
        listeners_(std::move(listeners)),
        enough_bytes_(enough_bytes) {}

  /// Returns the index of a parameter with gradients of so many bytes.
  size_t add(int64_t bytes, int passes) {
    bytes_.push_back(bytes);
    left_.push_back(passes);
    return left_.size() - 1;
  }

  /// From now on parameters need so many passes. What is noted stays.
  void restart(int passes) {
    std::fill(left_.begin(), left_.end(), passes);
    complete_count_ = 0;
    is_begun_ = false;
  }

  void begin_pass() { is_begun_ = false; }

  /// Notes nothing any more: the owner is gone.
  void stop() {
    is_stopped_ = true;
    take();
  }

  /// Indices, gradients, their versions; and whether the memory of all of them can be sent as it
  /// lies (it may hold negative values, which reduce_all() finds).
  nb::tuple take() {
    const bool are_plain = std::exchange(are_plain_, true);
    noted_bytes_ = 0;
    return nb::make_tuple(std::exchange(indices_, nb::list()),
                          std::exchange(gradients_, nb::list()),
                          std::exchange(versions_, nb::list()), are_plain);
  }

  bool has_noted() const { return nb::len(indices_) > 0; }

  void on_gradient(size_t index, nb::handle parameter) {
    if (is_stopped_) return;
    if (!std::exchange(is_begun_, true)) tell(listeners_.begin);
    if (left_[index] == 0) return tell(listeners_.too_often, nb::int_(index).ptr());
    if (--left_[index] > 0) return;
    note(index, nb::getattr(parameter, "grad"));
    ++complete_count_;
    if (noted_bytes_ >= enough_bytes_ || complete_count_ == left_.size()) tell(listeners_.enough);
  }

 private:
  /// With one argument or none.
  static void tell(const nb::callable& listener, PyObject* argument = nullptr) {
    PyObject* const answer = stopping_at_the_end(
        [&] { return PyObject_CallFunctionObjArgs(listener.ptr(), argument, nullptr); });
    if (answer == nullptr) nb::raise_python_error();
    Py_DECREF(answer);
  }

  void note(size_t index, nb::object gradient) {
    hvd_tensor ignored;
    are_plain_ = are_plain_ && reader_.read_layout(gradient.ptr(), ignored);
    noted_bytes_ += bytes_[index];
    indices_.append(index);
    versions_.append(nb::getattr(gradient, "_version", nb::none()));
    gradients_.append(std::move(gradient));
  }

  nb::capsule readers_;
  const Reader& reader_;
  Listeners listeners_;
  const int64_t enough_bytes_;
  std::vector<int64_t> bytes_;  // by index
  std::vector<int> left_;       // by index
  size_t complete_count_ = 0;
  int64_t noted_bytes_ = 0;
  nb::list indices_, gradients_, versions_;
  bool are_plain_ = true;
  bool is_begun_ = false;
  bool is_stopped_ = false;
};

}  // namespace hvd::python
