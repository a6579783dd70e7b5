#include "core/device/gpu_info.h"

#include <fmt/core.h>

#include <array>

namespace hvd::device {
namespace {

constexpr size_t kTextBytes = 256;

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", group ? "-" : "", uuid.bytes[i]);
  }
  return text;
}

Ordinal device_at(const Driver& driver, int index) {
  Ordinal device = 0;
  driver.check(driver.call().device_get(&device, index), "cuDeviceGet");
  return device;
}

int attribute_of(const Driver& driver, Ordinal device, DeviceAttribute attribute) {
  if (driver.kind() == DeviceKind::rocm) return 0;  // HIP has other numbers
  int value = 0;
  driver.check(driver.call().device_get_attribute(&value, attribute, device),
               "cuDeviceGetAttribute");
  return value;
}

}  // namespace

GpuInfo gpu_info(const Driver& driver, int index) {
  const DriverTable& call = driver.call();
  const Ordinal device = device_at(driver, index);
  std::array<char, kTextBytes> name{}, bus_id{};
  Uuid uuid{};
  driver.check(call.device_get_name(name.data(), kTextBytes - 1, device), "cuDeviceGetName");
  driver.check(call.device_get_pci_bus_id(bus_id.data(), kTextBytes - 1, device),
               "cuDeviceGetPCIBusId");
  driver.check(call.device_get_uuid(&uuid, device), "cuDeviceGetUuid");
  return {
      .index = index,
      .name = name.data(),
      .uuid = text_of(uuid),
      .bus_id = bus_id.data(),
      .capability_major = attribute_of(driver, device, DeviceAttribute::compute_capability_major),
      .capability_minor = attribute_of(driver, device, DeviceAttribute::compute_capability_minor),
  };
}

std::vector<std::vector<int>> peer_access(const Driver& driver) {
  std::vector<std::vector<int>> peers(static_cast<size_t>(driver.gpu_count()));
  for (int from = 0; from < driver.gpu_count(); ++from) {
    for (int to = 0; to < driver.gpu_count(); ++to) {
      int can = 0;
      if (from == to) continue;
      driver.check(driver.call().device_can_access_peer(&can, device_at(driver, from),
                                                        device_at(driver, to)),
                   "cuDeviceCanAccessPeer");
      if (can != 0) peers[static_cast<size_t>(from)].push_back(to);
    }
  }
  return peers;
}

}  // namespace hvd::device
