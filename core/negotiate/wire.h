// Encoding of the negotiation messages. Pure. A slot takes a few bytes. Decoding checks every
// limit, and allocates only for data that the message contains. docs/wire.md lists the formats.
#pragma once

#include "core/base/bytes.h"
#include "core/negotiate/messages.h"

namespace hvd {

inline constexpr size_t kMaxEntriesInMessage =
    size_t{1} << 20;  ///< equal to the limit of operations in flight
inline constexpr size_t kMaxVerdictsInMessage = size_t{1} << 20;
inline constexpr size_t kMaxRanks = size_t{1} << 20;

ByteVector encode(const Up& up);
ByteVector encode(const Down& down);

/// Throw Error{internal} if the bytes are not such a message.
Up decode_up(ConstBytes bytes);
Down decode_down(ConstBytes bytes);

}  // namespace hvd
