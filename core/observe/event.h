// What the engine lets others see of its work: one value for everything that can be observed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace hvd {

/// One operation goes through `ready`, `agreed`, any number of `activity`, `done`; one that fails
/// may skip all but the first and the last. Words in `what` live as long as the program.
struct Event {
  enum class Type : uint8_t {
    ready,     ///< `rank` has submitted the operation, of kind `what`; agreement begins
    agreed,    ///< agreement has ended, the operation of kind `what` begins
    activity,  ///< the operation now does `what`; what it did before has ended
    done,      ///< it is complete, well or not; `dtype` and `shapes` are those of its inputs
    cycle,     ///< the engine acts on a verdict
    lost,      ///< `count` events before this one were dropped, because the ring was full
  };
  Type type = Type::cycle;
  TimePoint time{};
  uint32_t group = 0;  ///< with `name`, which operation; none in `cycle` and `lost`
  std::string name{};
  std::string_view what{};  ///< "ALLREDUCE", "QUEUE", ...
  int rank = 0;
  DType dtype = DType::uint8;
  std::vector<Shape> shapes{};
  uint64_t count = 0;
};

}  // namespace hvd
