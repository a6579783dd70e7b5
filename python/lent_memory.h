// Memory that the engine works on: which objects of a framework own it, and under which operation.
// Everything here is called with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace hvd::python {

namespace nb = nanobind;

/// What one operation has borrowed. In a list of all of them while the engine uses the memory.
class Loan {
 public:
  /// Returns an object that keeps `owners` alive and ends the loan when its last reference goes.
  /// `owners`: what owns the memory itself, such as the storage of a tensor and not the tensor,
  /// which can be given another storage meanwhile; one object or a tuple of them. `name`: a str.
  static nb::capsule make(nb::object owners, nb::object name) {
    return nb::capsule(new Loan(std::move(owners), std::move(name)),
                       [](void* loan) noexcept { delete static_cast<Loan*>(loan); });
  }

  /// The name of an operation that has borrowed from `owner`; None where there is none.
  static nb::object borrower_of(nb::handle owner) {
    for (const Loan* loan = all().next_; loan != &all(); loan = loan->next_) {
      if (loan->has(owner)) return loan->name_;
    }
    return nb::none();
  }

  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  Loan() = default;  // the head of the list
  Loan(nb::object owners, nb::object name)
      : owners_(std::move(owners)), name_(std::move(name)), before_(&all()), next_(all().next_) {
    before_->next_ = next_->before_ = this;
  }
  ~Loan() {
    before_->next_ = next_;
    next_->before_ = before_;
  }

  /// Never destroyed: loans may end after the interpreter is gone.
  static Loan& all() {
    static Loan& head = *new Loan;
    return head;
  }

  bool has(nb::handle owner) const {
    if (!PyTuple_CheckExact(owners_.ptr())) return owners_.is(owner);
    for (nb::handle one : nb::borrow<nb::tuple>(owners_)) {
      if (one.is(owner)) return true;
    }
    return false;
  }

  nb::object owners_;
  nb::object name_;
  Loan* before_ = this;
  Loan* next_ = this;
};

}  // namespace hvd::python
