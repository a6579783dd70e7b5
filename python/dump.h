// What a rank tells of its Python code to horovodrun --dump.
#pragma once

#include <nanobind/nanobind.h>

namespace hvd::python {

void add_dump(nanobind::module_& m);

}  // namespace hvd::python
