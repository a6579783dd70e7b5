// Functions of _core for elastic jobs.
#pragma once

#include <nanobind/nanobind.h>

#include "horovod/horovod.h"

namespace hvd::python {

void add_elastic(nanobind::module_& m);
/// Blocks until this process has a place, in an elastic job. Handles signals meanwhile, so that
/// Ctrl-C ends the wait. Raises what check_elastic_start() raises.
void await_place();
/// In an elastic job, raises HorovodShutdownError if this worker is not wanted any more, and
/// HorovodInternalError if another worker was lost: the caller may ask for another place.
void check_elastic_start(hvd_status status);

}  // namespace hvd::python
