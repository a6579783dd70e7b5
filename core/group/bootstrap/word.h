// What rank 0 says when it introduces itself: where it serves the Store, and the job's key. One
// line without blanks, which any launcher can carry.
#pragma once

#include <string>
#include <vector>

#include "core/transport/handshake.h"

namespace hvd {

struct Word {
  uint16_t port = 0;
  JobKey key{};
  std::string machine;  ///< that of rank 0, which is reached over loopback from there
  std::vector<std::string> addresses;  ///< numeric, the best first
};

/// As many addresses as an introduction has room for.
std::string to_text(const Word& word);
/// Throws Error{internal} when malformed; the text is not shown, for it has the key.
Word read_word(const std::string& text);

}  // namespace hvd
