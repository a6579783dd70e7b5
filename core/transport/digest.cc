#include "core/transport/digest.h"

#include "core/base/assert.h"
#include "core/transport/sodium.h"

namespace hvd {
namespace {

static_assert(sizeof(Digest) == crypto_hash_sha256_BYTES);
static_assert(sizeof(Digest) == crypto_auth_hmacsha256_BYTES);

}  // namespace

Digest sha256(ConstBytes input) {
  start_sodium();
  Digest digest;
  crypto_hash_sha256(sodium_out(digest), sodium_in(input), input.size());
  return digest;
}

Digest hmac_sha256(ConstBytes key, ConstBytes input) {
  start_sodium();
  Digest mac;
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, sodium_in(key), key.size());
  crypto_auth_hmacsha256_update(&state, sodium_in(input), input.size());
  crypto_auth_hmacsha256_final(&state, sodium_out(mac));
  sodium_memzero(&state, sizeof(state));  // the key can be recovered from it
  return mac;
}

bool are_equal_in_constant_time(ConstBytes one, ConstBytes other) {
  HVD_ASSERT(one.size() == other.size());
  start_sodium();
  return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace hvd
