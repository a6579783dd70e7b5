#include "core/bootstrap/machine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/base/error.h"
#include "core/transport/interfaces.h"

namespace hvd {

std::string kernel_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string network_name() {
  std::array<char, 64> network{};
  const ssize_t size = ::readlink("/proc/thread-self/ns/net", network.data(), network.size());
  return std::string(network.data(), size > 0 ? static_cast<size_t>(size) : 0);
}

std::vector<std::string> addresses_on(const std::string& interface_name) {
  std::vector<std::string> hosts;
  std::string known;
  for (const InterfaceAddress& one : interface_addresses()) {
    if (one.interface_name == interface_name) hosts.push_back(one.host);
    if (known.find(one.interface_name) == std::string::npos) known += " " + one.interface_name;
  }
  if (hosts.empty()) {
    fail(Code::invalid_argument,
         fmt::format("HOROVOD_GLOO_IFACE={}: no such interface is up; available:{}", interface_name,
                     known));
  }
  return hosts;
}

}  // namespace hvd
