// What every use of libsodium needs: its start, and bytes as it takes them. Only for .cc files.
#pragma once

#include <sodium.h>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace hvd {

/// Must precede other functions of libsodium. Any thread may call it. Throws Error{internal} if
/// libsodium cannot be initialized.
inline void start_sodium() {
  static const int started = ::sodium_init();
  if (started < 0) fail(Code::internal, "libsodium could not be initialized");
}

inline const unsigned char* sodium_in(ConstBytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

inline unsigned char* sodium_out(MutableBytes bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace hvd
