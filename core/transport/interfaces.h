// The addresses of this machine, as its peers may dial them.
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

/// Of the interfaces that are up; IPv4 before IPv6, without link-local ones, which mean nothing
/// elsewhere.
std::vector<InterfaceAddress> interface_addresses();

/// The address of ours from which `peer` is reached; empty when it is not. Sends nothing.
std::string address_towards(const Address& peer);

}  // namespace hvd
