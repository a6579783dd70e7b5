// What rank 0 publishes after it has collected the peer cards: all cards, or the error with which
// every rank fails. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/bootstrap/peer_card.h"

namespace hvd {

struct CardTable {
  Code code = Code::ok;
  int32_t rank = kNoRank;  ///< that caused the error
  std::string reason{};
  std::vector<PeerCard> cards{};  ///< [rank]; empty on an error
};

/// Leaves out PeerCard::agreed, which rank 0 has compared already.
ByteVector to_bytes(const CardTable& table);
/// Allocates only for cards that are present, whatever their count says. Throws Error{internal}
/// when malformed.
CardTable read_card_table(ConstBytes bytes);

}  // namespace hvd
