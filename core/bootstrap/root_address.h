// The root address: where rank 0 serves the Store, and the key of the job. A rendezvous carries it
// from rank 0 to the other ranks as one line without blanks. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/transport/handshake.h"

namespace hvd {

struct RootAddress {
  uint16_t port = 0;
  JobKey key{};
  std::string machine;  ///< machine of rank 0: ranks on the same one connect over loopback
  std::vector<std::string> addresses;  ///< numeric, in order of preference
};

/// At most kMaxRendezvousBytes: addresses that do not fit are left out.
std::string to_text(const RootAddress& root);
/// Throws Error{internal} when malformed. The error does not show the text, which contains the key.
RootAddress read_root_address(const std::string& text);

}  // namespace hvd
