#include "core/transport/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/base/error.h"

namespace hvd {
namespace {

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

bool is_link_local(const sockaddr_in6& address) {
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr);
}

bool is_of_use(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  return !is_link_local(*reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr));
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) fail_errno("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::vector<InterfaceAddress> four, six;
  for (const ifaddrs* entry = list.get(); entry; entry = entry->ifa_next) {
    if (!is_of_use(*entry)) continue;
    const bool is_four = entry->ifa_addr->sa_family == AF_INET;
    const socklen_t size = is_four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    (is_four ? four : six).push_back({entry->ifa_name, numeric(entry->ifa_addr, size), loopback});
  }
  four.insert(four.end(), six.begin(), six.end());
  return four;
}

std::string address_towards(const Address& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(peer.port);
  if (::getaddrinfo(peer.host.c_str(), port.c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  const FileDescriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* generic = reinterpret_cast<sockaddr*>(&own);
  // Connecting a datagram socket only selects the route.
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return "";
  if (::getsockname(socket.get(), generic, &size) != 0) return "";
  return numeric(generic, size);
}

}  // namespace hvd
