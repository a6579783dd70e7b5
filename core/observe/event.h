// One thing that the engine did, for observers. All fields except the name of the operation are
// numbers and enumerations. Sinks choose the words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/operation.h"
#include "core/base/route.h"
#include "core/base/shape.h"

namespace hvd {

/// The events of an operation are `ready`, `agreed`, any number of `activity`, and `done`. A failed
/// operation may have only the first and the last.
struct Event {
  enum class Type : uint8_t {
    ready,     ///< `rank` has submitted the operation; negotiation begins
    agreed,    ///< negotiation has ended; the operation begins
    activity,  ///< `activity` begins; the previous activity has ended
    done,      ///< the operation has completed or failed; `shapes` has the shapes of its inputs
    cycle,     ///< the engine acts on a verdict
    lost,      ///< `count` events before this one were dropped, because the ring was full
  };
  enum class Activity : uint8_t {
    queued,   ///< the operation waits for earlier batches
    meeting,  ///< the ranks agree how they move data, and connect their devices
    sizes,    ///< the ranks exchange sizes
    outputs,  ///< outputs are allocated
    data,     ///< data is moved, see `route`
  };
  Type type = Type::cycle;
  Activity activity = Activity::queued;
  Route route{};  ///< in `activity` except `queued`
  TimePoint time{};
  uint32_t group = 0;  ///< with `name`, which operation; none in `cycle` and `lost`
  std::string name{};
  Operation operation{};
  uint64_t bytes = 0;  ///< size of the inputs of this rank
  uint64_t batch = 0;  ///< in `activity` except `queued`: Batch::sequence
  int rank = 0;
  std::vector<Shape> shapes{};
  uint64_t count = 0;
};

}  // namespace hvd
