#include "python/elastic.h"

#include <nanobind/stl/string.h>

#include <string>

#include "python/errors.h"
#include "python/gil.h"

namespace hvd::python {
namespace {

namespace nb = nanobind;

/// Between two looks at the signals of Python.
constexpr double kRoundSeconds = 0.1;

[[noreturn]] void raise(const char* type, const std::string& text) {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  PyErr_SetString(exception_class(type).ptr(), text.c_str());
  throw nb::python_error();
}

nb::tuple place() {
  int64_t generation = 0;
  const char* variables = nullptr;
  check(hvd_get_place(&generation, &variables));
  return nb::make_tuple(generation, nb::str(variables));
}

nb::object pending_update() {
  hvd_elastic_update update{};
  bool pending = false;
  check(without_gil([&] { return hvd_pending_update(&update, &pending); }));
  if (!pending) return nb::none();
  return nb::make_tuple(update.added, update.removed, update.timestamp);
}

}  // namespace

void check_elastic_start(hvd_status status) {
  if (status == HVD_OK || !hvd_is_elastic()) return;
  const std::string text = hvd_last_error();
  if (status == HVD_SHUT_DOWN) raise("HorovodShutdownError", text);
  if (status == HVD_PEER_LOST || status == HVD_TIMED_OUT) raise("HorovodInternalError", text);
}

void await_place() {
  bool placed = false;
  while (true) {
    const hvd_status status = without_gil([&] { return hvd_await_place(kRoundSeconds, &placed); });
    check_elastic_start(status);
    check(status);
    if (placed) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void add_elastic(nb::module_& m) {
  m.def("is_elastic", &hvd_is_elastic);
  m.def("ask_for_place", [] { check(without_gil(hvd_ask_for_place)); });
  m.def("await_place", &await_place);
  m.def("place", &place);
  m.def("pending_update", &pending_update);
  m.def("leave_job", [] { check(without_gil(hvd_leave_job)); });
}

}  // namespace hvd::python
