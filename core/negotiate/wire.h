// The messages of agreement as bytes. Pure. A slot costs a few bytes; what is decoded has been
// checked against every limit, and memory is taken only for what the message really contains.
// docs/wire.md lists the formats.
#pragma once

#include "core/base/bytes.h"
#include "core/negotiate/messages.h"

namespace hvd {

inline constexpr size_t kMaxEntriesInMessage = size_t{1} << 20;  ///< as many as may be in flight
inline constexpr size_t kMaxVerdictsInMessage = size_t{1} << 20;
inline constexpr size_t kMaxRanks = size_t{1} << 20;

ByteVector encode(const Up& up);
ByteVector encode(const Down& down);

/// Throw Error{internal} when the bytes are not such a message.
Up decode_up(ConstBytes bytes);
Down decode_down(ConstBytes bytes);

}  // namespace hvd
