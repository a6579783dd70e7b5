// The key of a job whose ranks find each other at an address that all of them know, without a
// launcher that could hand it out: a file with the same content on all hosts.
#pragma once

#include "core/base/knobs.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"

namespace hvd {

/// From HOROVOD_SECRET_FILE; one that everybody knows where HOROVOD_NO_SECRET=1 asks for that,
/// which is logged. Throws Error{unauthorized} with the command that helps, when there is none,
/// it is no regular file, it belongs to another user (also when this one is root), others may read
/// it, or its size is not that of a secret. Never waits for the file.
JobKey shared_key(const Knobs& knobs, const Address& address);

}  // namespace hvd
