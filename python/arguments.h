// The tensors of one operation, read from the arguments of a call from Python.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "horovod/horovod.h"
#include "python/operation.h"
#include "python/tensor_reader.h"

namespace hvd::python {

/// Needs the GIL. The arguments must outlive it. Must not be moved while a request refers to it.
class Arguments {
 public:
  /// `inputs`, `outputs`: see TensorList. `outputs` may be None, or the same object as `inputs` for
  /// an operation in place. `reader`: nullptr if all tensors are tuples.
  Arguments(const Reader* reader, nb::handle inputs, nb::handle outputs)
      : reader_(reader), given_inputs_(inputs), given_outputs_(outputs), inputs_(reader, inputs) {
    if (has_outputs() && !is_in_place()) outputs_.emplace(reader, outputs);
  }

  /// Returns false if the reader cannot read a tensor, or a reduction has a dtype that not every op
  /// supports. Python must then describe the tensors by tuples. Raises TypeError if there is no
  /// reader and a tensor is not a tuple.
  bool can_be_read_for(const Operation& operation) {
    if (!inputs_.is_readable() || (outputs_ && !outputs_->is_readable())) {
      if (reader_ != nullptr) return false;
      throw nb::type_error(
          "without a reader, tensors are tuples (address, shape, dtype number, owner)");
    }
    return reader_ == nullptr || !operation.reduces() || inputs_.has_one_type_for_every_op();
  }

  /// The request refers to this object and to `operation`. Raises ValueError if the number of
  /// outputs and inputs differs. `name` may be nullptr for a call on a group.
  hvd_request request(const Operation& operation, const char* name) {
    if (outputs_ && outputs_->count() != inputs_.count())
      throw nb::value_error("the number of outputs and inputs differs");
    hvd_request request = operation.request(name);
    request.count = static_cast<int32_t>(inputs_.count());
    request.inputs = inputs_.data();
    if (inputs_.count() > 0 && operation.converts(inputs_.data()[0]))
      request.sent_as = &operation.sent_as.value();
    if (has_outputs()) request.outputs = (outputs_ ? *outputs_ : inputs_).addresses();
    return request;
  }

  /// Returns as many tensors as there are inputs, once request() has checked that. nullptr if the
  /// runtime allocates the outputs.
  const hvd_tensor* outputs() {
    return has_outputs() ? (outputs_ ? *outputs_ : inputs_).data() : nullptr;
  }

  nb::object owners() const {
    if (!outputs_) return owners_of(reader_, given_inputs_);
    nb::list all;
    for (nb::handle tensors : {given_inputs_, given_outputs_}) {
      if (PyList_CheckExact(tensors.ptr()))
        all.extend(tensors);
      else
        all.append(tensors);
    }
    return owners_of(reader_, all);
  }

 private:
  bool has_outputs() const { return !given_outputs_.is_none(); }
  bool is_in_place() const { return given_outputs_.is(given_inputs_); }

  const Reader* reader_;
  nb::handle given_inputs_;
  nb::handle given_outputs_;
  TensorList inputs_;
  std::optional<TensorList> outputs_;  // empty if the operation is in place
};

}  // namespace hvd::python
