// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) by libsodium. Any thread may call these
// functions. They throw Error{internal} if libsodium cannot be initialized.
#pragma once

#include <array>

#include "core/base/bytes.h"

namespace hvd {

/// The result of SHA-256 or HMAC-SHA-256: 32 bytes.
using Digest = std::array<std::byte, 32>;

Digest sha256(ConstBytes input);

/// `key`: any number of bytes. A key of more than 64 bytes is replaced by its SHA-256.
Digest hmac_sha256(ConstBytes key, ConstBytes input);

/// Compares in a time that depends on the size alone, so that it reveals nothing about a secret.
/// Both must have the same size.
bool are_equal_in_constant_time(ConstBytes one, ConstBytes other);

}  // namespace hvd
