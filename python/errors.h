// Converts a status of the C interface to a Python exception.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "horovod/horovod.h"
#include "python/gil.h"

namespace hvd::python {

inline nanobind::object exception_class(const char* name) {
  PyObject* const module =
      stopping_at_the_end([] { return PyImport_ImportModule("horovod.common.exceptions"); });
  if (module == nullptr) throw nanobind::python_error();
  return nanobind::steal(module).attr(name);
}

/// Raises the exception for a status, see the table in the documentation of _core.
inline void check(hvd_status status, const std::string& text) {
  if (status == HVD_OK) return;
  if (status == HVD_INVALID_ARGUMENT || status == HVD_NOT_INITIALIZED)
    throw nanobind::value_error(text.c_str());
  const bool mismatch = status == HVD_MISMATCH;
  // A signal during the call may have ended other ranks, too (Ctrl-C), and so caused this error.
  // Its handler must raise first. Otherwise it would raise later, e.g. inside a `finally` block.
  if (!mismatch && PyErr_CheckSignals() != 0) throw nanobind::python_error();
  const nanobind::object raised =
      exception_class(mismatch ? "HorovodMismatchError" : "HorovodInternalError");
  PyErr_SetString(raised.ptr(), text.c_str());
  throw nanobind::python_error();
}

/// The same, right after the call.
inline void check(hvd_status status) {
  if (status != HVD_OK) check(status, hvd_last_error());
}

}  // namespace hvd::python
