// What the kernel knows about the other host of a TCP connection: whether it acknowledges what was
// sent to it. A process that is stopped does not prevent that. For horovodrun --dump.
#pragma once

#include <chrono>
#include <optional>

namespace hvd {

/// How long nothing has come from the other host, if it has not acknowledged something that was
/// sent several times (data or a keepalive probe). None: all is well, or `socket` is not of TCP.
std::optional<std::chrono::milliseconds> silence_at(int socket);

}  // namespace hvd
