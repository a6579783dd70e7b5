// Outputs on a device that a function of Python allocates, because their size depends on other
// ranks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <csignal>
#include <cstdint>
#include <span>
#include <string>

#include "horovod/horovod.h"
#include "python/gil.h"
#include "python/lent_memory.h"
#include "python/tensors.h"

namespace hvd::python {

/// The text of an object, whatever its `__str__` does, without surrogates.
inline std::string text_of(nb::handle object) {
  const nb::object text =
      nb::steal(stopping_at_the_end([=] { return PyObject_Str(object.ptr()); }));
  nb::object bytes;
  if (text.is_valid())
    bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (bytes.is_valid()) return PyBytes_AsString(bytes.ptr());
  PyErr_Clear();
  return "(its text cannot be read)";
}

/// "ValueError: the text". Passes a KeyboardInterrupt on.
inline std::string text_of(nb::python_error& error) {
  // Python would ignore it on this thread; the main thread raises it instead.
  if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterruptEx(SIGINT);
  return text_of(error.type().attr("__name__")) + ": " + text_of(error.value());
}

/// Lets Python allocate an output. Throws what it raises.
inline void allocate_output(Loan& loan, int32_t index, std::span<const int64_t> shape,
                            hvd_tensor& output) {
  nb::list sizes;
  for (const int64_t size : shape) sizes.append(size);
  const nb::object number = nb::int_(index);
  const nb::tuple of_python(sizes);
  PyObject* const result = stopping_at_the_end([&] {
    return PyObject_CallFunctionObjArgs(loan.allocate().ptr(), number.ptr(), of_python.ptr(),
                                        nullptr);
  });
  if (result == nullptr) nb::raise_python_error();
  const nb::object made = nb::steal(result);
  output.data = reinterpret_cast<void*>(nb::cast<Address>(made[0]));
  output.stream = reinterpret_cast<void*>(nb::cast<Address>(made[1]));
  loan.add_owner(made[2]);
}

/// hvd_request::allocate for a request whose owner is a Loan. Acquires the GIL, on any thread.
inline const char* allocate_output(void* owner, int32_t index, const int64_t* shape,
                                   int32_t dimensions, hvd_tensor* output) {
  const Locked locked;
  Loan& loan = Loan::of(static_cast<PyObject*>(owner));
  try {
    allocate_output(loan, index, {shape, static_cast<size_t>(dimensions)}, *output);
    return nullptr;
  } catch (nb::python_error& error) {
    return loan.keep_failure(text_of(error));
  } catch (const std::exception& error) {
    return loan.keep_failure(error.what());
  }
}

}  // namespace hvd::python
