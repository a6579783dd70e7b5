#include "core/transport/tcp_silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace hvd {
namespace {

/// On a network without faults a packet may be lost, and be sent again once.
constexpr int kRepetitions = 2;

}  // namespace

std::optional<std::chrono::milliseconds> silence_at(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (info.tcpi_retransmits < kRepetitions && info.tcpi_probes == 0) return std::nullopt;
  return std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

}  // namespace hvd
