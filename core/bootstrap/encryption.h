// Whether a rank encrypts its connections.
#pragma once

#include "core/base/knobs.h"
#include "core/transport/handshake.h"

namespace hvd {

inline Encryption encryption_of(const Knobs& knobs) {
  return knobs.encrypt ? Encryption::on : Encryption::off;
}

}  // namespace hvd
