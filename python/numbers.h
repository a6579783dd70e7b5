// The enumerations of the C interface, as integers of the module.
#pragma once

#include <nanobind/nanobind.h>

#include "horovod/horovod.h"

namespace hvd::python {

inline void add_numbers(nanobind::module_& m) {
  m.attr("ALLREDUCE") = static_cast<int>(HVD_ALLREDUCE);
  m.attr("ALLGATHER") = static_cast<int>(HVD_ALLGATHER);
  m.attr("BROADCAST") = static_cast<int>(HVD_BROADCAST);
  m.attr("ALLTOALL") = static_cast<int>(HVD_ALLTOALL);
  m.attr("REDUCESCATTER") = static_cast<int>(HVD_REDUCESCATTER);
  m.attr("BARRIER") = static_cast<int>(HVD_BARRIER);
  m.attr("JOIN") = static_cast<int>(HVD_JOIN);
  m.attr("MESSAGE") = static_cast<int>(HVD_MESSAGE);
  m.attr("HOST") = static_cast<int>(HVD_HOST);
  m.attr("CUDA") = static_cast<int>(HVD_CUDA);
  m.attr("ROCM") = static_cast<int>(HVD_ROCM);
}

}  // namespace hvd::python
