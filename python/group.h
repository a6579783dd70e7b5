// _core.Group: a blocking group for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "python/operation.h"

namespace hvd::python {

/// Owns an hvd_group. One thread at a time may use it. All functions need the GIL and release it
/// during collective calls.
class Group {
 public:
  /// `ranks`: global; empty: all. `name`: see hvd_group_create_named. Raises ValueError,
  /// HorovodInternalError.
  Group(const std::vector<int32_t>& ranks, const std::string& name);
  ~Group() { close(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }

  /// Runs one operation from `input` to `output` and blocks until it is done. Ignores the process
  /// set; the root is a rank of the group. `reader`: a capsule with a Reader, or None if the
  /// tensors are tuples (tensors.h). Returns false, without running it, where Arguments cannot be
  /// read. Raises ValueError if an output does not have the type and the number of elements of the
  /// result.
  bool run(const Operation& operation, nanobind::handle input, nanobind::handle output,
           nanobind::handle reader);
  void barrier();
  /// Frees the group. Collective. Does nothing if it is closed already.
  void close();

 private:
  void check_outputs(const hvd_request& request, const hvd_tensor* outputs) const;
  void run(const hvd_request& request);

  hvd_group* group_ = nullptr;
  int32_t rank_ = 0;
  int32_t size_ = 0;
};

void define_group(nanobind::module_& module);

}  // namespace hvd::python
