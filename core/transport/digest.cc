#include "core/transport/digest.h"

#include <sodium.h>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

static_assert(sizeof(Digest) == crypto_hash_sha256_BYTES);
static_assert(sizeof(Digest) == crypto_auth_hmacsha256_BYTES);

const unsigned char* in(ConstBytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* out(Digest& digest) { return reinterpret_cast<unsigned char*>(digest.data()); }

}  // namespace

void start_sodium() {
  static const int started = sodium_init();
  if (started < 0) fail(Code::internal, "libsodium could not be initialized");
}

Digest sha256(ConstBytes input) {
  start_sodium();
  Digest digest;
  crypto_hash_sha256(out(digest), in(input), input.size());
  return digest;
}

Digest hmac_sha256(ConstBytes key, ConstBytes input) {
  start_sodium();
  Digest mac;
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, in(key), key.size());
  crypto_auth_hmacsha256_update(&state, in(input), input.size());
  crypto_auth_hmacsha256_final(&state, out(mac));
  sodium_memzero(&state, sizeof(state));  // the key can be recovered from it
  return mac;
}

bool are_equal_in_constant_time(ConstBytes one, ConstBytes other) {
  HVD_ASSERT(one.size() == other.size());
  start_sodium();
  return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace hvd
