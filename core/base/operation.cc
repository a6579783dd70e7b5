#include "core/base/operation.h"

#include <array>

#include "core/base/assert.h"

namespace hvd {
namespace {

template <size_t kCount, class Enumeration>
std::string_view at(const std::array<std::string_view, kCount>& names, Enumeration value) {
  const auto index = static_cast<size_t>(value);
  HVD_ASSERT(index < names.size());
  return names[index];
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  constexpr std::array<std::string_view, 10> kNames{
      "allreduce", "allgather", "broadcast", "alltoall",        "reducescatter",
      "barrier",   "join",      "message",   "add_process_set", "remove_process_set"};
  static_assert(kNames.size() == static_cast<size_t>(kLastOperationKind) + 1);
  return at(kNames, kind);
}

std::string_view name_of(DeviceKind device) {
  constexpr std::array<std::string_view, 3> kNames{"host memory", "CUDA memory", "ROCm memory"};
  static_assert(kNames.size() == static_cast<size_t>(kLastDeviceKind) + 1);
  return at(kNames, device);
}

}  // namespace hvd
