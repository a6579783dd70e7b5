// Outputs on a device that a function of Python allocates, because their size depends on other
// ranks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <csignal>
#include <cstdint>
#include <string>

#include "horovod/horovod.h"
#include "python/gil.h"
#include "python/lent_memory.h"
#include "python/tensors.h"

namespace hvd::python {

/// "ValueError: the text". Passes a KeyboardInterrupt on.
inline std::string text_of(nb::python_error& error) {
  // Python would ignore it on this thread; the main thread raises it instead.
  if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterruptEx(SIGINT);
  const auto type = nb::cast<std::string>(error.type().attr("__name__"));
  return type + ": " + nb::cast<std::string>(nb::str(error.value()));
}

/// hvd_request::allocate for a request whose owner is a Loan. Acquires the GIL, on any thread.
inline const char* allocate_output(void* owner, int32_t index, const int64_t* shape,
                                   int32_t dimensions, hvd_tensor* output) {
  const auto state = stopping_at_the_end([] { return PyGILState_Ensure(); });
  Loan& loan = Loan::of(static_cast<PyObject*>(owner));
  const char* failure = nullptr;
  try {
    nb::list sizes;
    for (int32_t i = 0; i < dimensions; ++i) sizes.append(shape[i]);
    const nb::tuple made = nb::cast<nb::tuple>(loan.allocate()(index, nb::tuple(sizes)));
    output->data = reinterpret_cast<void*>(nb::cast<Address>(made[0]));
    output->stream = reinterpret_cast<void*>(nb::cast<Address>(made[1]));
    loan.add_owner(made[2]);
  } catch (nb::python_error& error) {
    failure = loan.keep_failure(text_of(error));
  } catch (const std::exception& error) {
    failure = loan.keep_failure(error.what());
  }
  PyGILState_Release(state);
  return failure;
}

}  // namespace hvd::python
