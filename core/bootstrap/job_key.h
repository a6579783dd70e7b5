// Gets the job's key from horovodrun. The keeper of the host gives it to the process of the rank
// and to all descendants of it, so a wrapper may start the script in any way. The key is never
// passed in the environment, on the command line or in a file (core/transport/key_request.h).
#pragma once

#include "core/base/knobs.h"
#include "core/bootstrap/start_deadline.h"
#include "core/transport/key_request.h"

namespace hvd {

/// The variable in which horovodrun passes the name of the keeper's socket.
inline constexpr const char* kKeySocketVariable = "HOROVOD_KEY_SOCKET";

/// The key, and the generation of the job that this process starts as `rank` (the launcher's
/// number), if it `begins`. Blocks. Throws Error{unauthorized} with the reason if the keeper
/// refuses, Error{peer_lost} if there is no keeper, and Error{timed_out}.
KeyAnswer ask_for_key(const Environment& environment, const KeyRequest& request,
                      const StartDeadline& deadline);

}  // namespace hvd
