// The result of one step of an object that progresses in steps.
#pragma once

#include <cstdint>

namespace hvd {

enum class Progress : uint8_t {
  waiting,   ///< no progress: waits for an external event
  moved,     ///< made progress; more work remains
  launched,  ///< the rest is queued on a device, which needs no further steps
  done,      ///< complete
};

}  // namespace hvd
