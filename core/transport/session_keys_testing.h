// Keys of the two ends of an encrypted connection, for tests.
#pragma once

#include <utility>
#include <vector>

#include "core/transport/record_cipher.h"

namespace hvd {

inline std::pair<SessionKeys, SessionKeys> session_keys(Cipher cipher, int seed = 1) {
  SessionKeys keys{.cipher = cipher};
  for (size_t i = 0; i < keys.send.size(); ++i) {
    keys.send[i] = static_cast<std::byte>(i * 7 + seed);
    keys.receive[i] = static_cast<std::byte>(i * 5 + 100 + seed);
  }
  return {keys, {.cipher = cipher, .send = keys.receive, .receive = keys.send}};
}

/// The ciphers that this CPU can run.
inline std::vector<Cipher> all_ciphers() {
  std::vector<Cipher> all{Cipher::chacha20_poly1305};
  if (has_fast_aes()) all.push_back(Cipher::aes256_gcm);
  return all;
}

}  // namespace hvd
