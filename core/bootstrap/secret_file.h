// The key of a job without a launcher that could distribute it: derived from a secret file, which
// has the same content on all hosts.
#pragma once

#include "core/base/knobs.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"

namespace hvd {

/// The key from HOROVOD_SECRET_FILE; with HOROVOD_NO_SECRET=1 a fixed, public one, and a warning.
/// Throws Error{unauthorized} with the remedy if neither is set, or if the file is not a regular
/// one, belongs to another user (even if this one is root), is accessible to others, or has less
/// than 16 or more than 4096 bytes. Never blocks. `address`: for messages.
JobKey shared_key(const Knobs& knobs, const Address& address);

}  // namespace hvd
