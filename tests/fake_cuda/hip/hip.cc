// The stand-in for libamdhip64.so: what differs from the driver of CUDA by more than its name.
#include "tests/fake_cuda/state.h"

using namespace hvd::device;

extern "C" Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes,
                                StreamHandle stream);

FAKE_EXPORT Result hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind,
                                  StreamHandle stream) {
  constexpr int kFromAddresses = 4;  // hipMemcpyDefault
  if (kind != kFromAddresses) fake::misuse("a copy whose kind is not hipMemcpyDefault");
  return cuMemcpyAsync(reinterpret_cast<DevicePointer>(to), reinterpret_cast<DevicePointer>(from),
                       bytes, stream);
}
