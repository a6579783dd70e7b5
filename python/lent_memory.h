// Tracks the memory that operations in flight use: the owners in the framework and the name of the
// operation. All functions need the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace hvd::python {

namespace nb = nanobind;

/// The memory of one operation. Element of a global list while the engine uses the memory.
class Loan {
 public:
  /// Returns an object that keeps `owners` alive and ends the loan when it is destroyed. `owners`:
  /// the objects that own the memory, one or a tuple. For a tensor that is its storage, since the
  /// tensor may get another storage meanwhile. `name`: a str.
  /// `allocate`: see outputs.h; may be None.
  static nb::capsule make(nb::object owners, nb::object name, nb::object allocate = nb::none()) {
    return nb::capsule(new Loan(std::move(owners), std::move(name), std::move(allocate)),
                       [](void* loan) noexcept { delete static_cast<Loan*>(loan); });
  }
  /// The loan of an object that make() has returned.
  static Loan& of(PyObject* capsule) {
    return *static_cast<Loan*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  }

  const nb::object& allocate() const { return allocate_; }
  /// Returns a copy of `text` that lives as long as the loan.
  const char* keep_failure(std::string text) {
    failure_ = std::move(text);
    return failure_.c_str();
  }
  /// Keeps another object alive. It is not found by borrower_of().
  void add_owner(nb::object owner) {
    if (!more_owners_.is_valid()) more_owners_ = nb::list();
    nb::borrow<nb::list>(more_owners_).append(std::move(owner));
  }

  /// Returns the name of an operation that uses memory of `owner`, None if there is none.
  /// `identity`: an attribute that all objects of one owner have in common; None if an owner has
  /// only one object.
  static nb::object borrower_of(nb::handle owner, nb::handle identity) {
    const nb::object wanted = identity_of(owner, identity);
    for (const Loan* loan = all().next_; loan != &all(); loan = loan->next_) {
      if (loan->has(wanted, identity)) return loan->name_;
    }
    return nb::none();
  }

  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  Loan() = default;  // the head of the list
  Loan(nb::object owners, nb::object name, nb::object allocate)
      : owners_(std::move(owners)),
        name_(std::move(name)),
        allocate_(std::move(allocate)),
        before_(&all()),
        next_(all().next_) {
    before_->next_ = next_->before_ = this;
  }
  ~Loan() {
    before_->next_ = next_;
    next_->before_ = before_;
  }

  /// Never destroyed: loans may end after the finalization of the interpreter.
  static Loan& all() {
    static Loan& head = *new Loan;
    return head;
  }

  static nb::object identity_of(nb::handle owner, nb::handle identity) {
    return identity.is_none() ? nb::borrow(owner) : nb::getattr(owner, identity, nb::none());
  }
  static bool is(nb::handle owner, nb::handle wanted, nb::handle identity) {
    if (identity.is_none()) return owner.is(wanted);
    return identity_of(owner, identity).equal(wanted);
  }

  bool has(nb::handle wanted, nb::handle identity) const {
    if (!PyTuple_CheckExact(owners_.ptr())) return is(owners_, wanted, identity);
    for (nb::handle one : nb::borrow<nb::tuple>(owners_)) {
      if (is(one, wanted, identity)) return true;
    }
    return false;
  }

  nb::object owners_;
  nb::object name_;
  nb::object allocate_;
  nb::object more_owners_;  ///< a list, or empty
  std::string failure_;
  Loan* before_ = this;
  Loan* next_ = this;
};

}  // namespace hvd::python
