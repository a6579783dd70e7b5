// The addresses of this machine that peers can connect to.
#pragma once

#include <string>
#include <vector>

#include "core/transport/socket.h"

namespace hvd {

struct InterfaceAddress {
  std::string interface_name;
  std::string host;  ///< numeric
  bool loopback = false;
  bool operator==(const InterfaceAddress&) const = default;
};

/// Returns the addresses of all interfaces that are up, IPv4 before IPv6. Omits link-local
/// addresses, which are not valid on other hosts.
std::vector<InterfaceAddress> interface_addresses();

/// Returns the local address from which `peer` is reached; empty if there is no route. Sends no
/// packets.
std::string address_towards(const Address& peer);

}  // namespace hvd
