// Tensors that Python describes by tuples, because the native module cannot read them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::python {

namespace nb = nanobind;

using Address = uintptr_t;

/// Converts a tuple (address, shape, dtype number, owner of the memory) to the form of the C
/// interface. For device memory the tuple also has device type, device index and stream. Stores the
/// dimensions in `shape`, to which the result refers.
inline hvd_tensor described(nb::handle item, std::vector<int64_t>& shape) {
  constexpr size_t kOnHost = 4;
  for (nb::handle dimension : nb::cast<nb::tuple>(item[1]))
    shape.push_back(nb::cast<int64_t>(dimension));
  hvd_tensor tensor{};
  tensor.data = reinterpret_cast<void*>(nb::cast<Address>(item[0]));
  tensor.shape = shape.data();
  tensor.dimensions = static_cast<int32_t>(shape.size());
  tensor.dtype = static_cast<hvd_dtype>(nb::cast<int>(item[2]));
  if (nb::len(item) == kOnHost) return tensor;
  tensor.device.type = static_cast<hvd_device_type>(nb::cast<int>(item[4]));
  tensor.device.index = nb::cast<int32_t>(item[5]);
  tensor.stream = reinterpret_cast<void*>(nb::cast<Address>(item[6]));
  return tensor;
}

inline nb::object owner_in(nb::handle item) { return item[3]; }

}  // namespace hvd::python
